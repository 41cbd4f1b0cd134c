"""The classification term: every source domain counts the same, however many of its images are in the batch."""

import torch
from torch import Tensor
from torch.nn import functional


def domain_mean_cross_entropy(logits: Tensor, labels: Tensor, domains: Tensor, *, num_domains: int) -> Tensor:
    """Return the mean over the domains in the batch of each domain's mean cross-entropy.

    Shapes: logits [B, C], labels [B], domains [B] with values below ``num_domains``.
    """
    losses = functional.cross_entropy(logits.float(), labels, reduction="none")
    zeros = torch.zeros(num_domains, dtype=losses.dtype, device=losses.device)
    totals = zeros.index_add(0, domains, losses)
    sizes = zeros.index_add(0, domains, torch.ones_like(losses))
    return (totals / sizes.clamp_min(1)).sum() / (sizes > 0).sum()
