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
    """The last N examples in buffers of fixed shape, the oldest first; no gradient flows into them.

    Places that are still empty have classes of their own, below zero, and therefore form no slot. The buffers are not
    persistent: a checkpoint contains them, a model file does not.
    """

    features: Tensor
    routing: Tensor
    labels: Tensor
    domains: Tensor

    def __init__(self, size: int, *, num_experts: int, width: int) -> None:
        super().__init__()
        self.register_buffer("features", torch.zeros(num_experts, size, width), persistent=False)
        self.register_buffer("routing", torch.zeros(size, num_experts), persistent=False)
        self.register_buffer("labels", -1 - torch.arange(size), persistent=False)
        self.register_buffer("domains", torch.zeros(size, dtype=torch.long), persistent=False)

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
        last = slice(-len(self.labels), None)
        self.features.copy_(torch.cat([self.features, batch.features], 1)[:, last])
        self.routing.copy_(torch.cat([self.routing, batch.routing])[last])
        self.labels.copy_(torch.cat([self.labels, batch.labels])[last])
        self.domains.copy_(torch.cat([self.domains, batch.domains])[last])
