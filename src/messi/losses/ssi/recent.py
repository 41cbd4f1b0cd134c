"""A memory of the last examples, so that the cells of the alignment are large enough to estimate a distribution.

Legend: M experts, B examples of a batch, N remembered examples, R features.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn


class AlignedExamples(NamedTuple):
    """What the alignment reads of some examples."""

    features: Tensor
    """[M, B, R] outputs of the experts."""
    routing: Tensor
    """[B, M]"""
    labels: Tensor
    """[B]"""
    domains: Tensor
    """[B]"""


class RecentExamples(nn.Module):
    """The last N examples, a ring in buffers of fixed shape; no gradient flows into them.

    Places that are still empty have classes of their own, below zero, and therefore form no slot. The buffers are not
    persistent: a checkpoint contains them, a model file does not.
    """

    features: Tensor
    routing: Tensor
    labels: Tensor
    domains: Tensor
    place: Tensor
    """The place of the next example."""

    def __init__(self, size: int, *, num_experts: int, width: int) -> None:
        super().__init__()
        self._remember("features", torch.zeros(num_experts, size, width))
        self._remember("routing", torch.zeros(size, num_experts))
        self._remember("labels", -1 - torch.arange(size))
        self._remember("domains", torch.zeros(size, dtype=torch.long))
        self._remember("place", torch.zeros((), dtype=torch.long))

    def with_batch(self, batch: AlignedExamples) -> AlignedExamples:
        """Return the examples of a batch, followed by the remembered ones."""
        return AlignedExamples(
            torch.cat([batch.features, self.features], 1),
            torch.cat([batch.routing, self.routing]),
            torch.cat([batch.labels, self.labels]),
            torch.cat([batch.domains, self.domains]),
        )

    @torch.no_grad()
    def add(self, batch: AlignedExamples) -> None:
        """Replace the oldest examples by those of a batch, in place: a captured step uses these tensors."""
        size = len(self.labels)
        number = min(len(batch.labels), size)
        places = (self.place + torch.arange(number, device=self.place.device)) % size
        self.features.index_copy_(1, places, batch.features[:, -number:].to(self.features.dtype))
        self.routing.index_copy_(0, places, batch.routing[-number:].to(self.routing.dtype))
        self.labels.index_copy_(0, places, batch.labels[-number:])
        self.domains.index_copy_(0, places, batch.domains[-number:])
        self.place.add_(number).remainder_(size)

    def _remember(self, name: str, tensor: Tensor) -> None:
        self.register_buffer(name, tensor, persistent=False)
