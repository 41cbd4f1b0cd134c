"""The classification term: every source domain counts the same, however many of its images are in the batch."""

from torch import Tensor
from torch.nn import functional


def domain_mean_cross_entropy(logits: Tensor, labels: Tensor, domains: Tensor) -> Tensor:
    """Return the mean over the domains in the batch of each domain's mean cross-entropy.

    Shapes: logits [B, C], labels [B], domains [B].
    """
    losses = functional.cross_entropy(logits.float(), labels, reduction="none")
    weights = 1 / (domains[:, None] == domains).sum(1)  # those of a domain add up to 1
    return (weights * losses).sum() / weights.sum()
