"""The loss of every domain by itself, and the mean over the domains that a batch holds.

Legend: B examples, C classes, K domains.
"""

from torch import Tensor
from torch.nn import functional

from messi.discrepancy.domains import membership


def domain_means(values: Tensor, members: Tensor) -> Tensor:
    """Return the mean of every domain, 0 where it has no member: values [B], members [K, B] -> [K]."""
    return (values * members).sum(1) / members.sum(1).clamp_min(1)


def domain_cross_entropies(logits: Tensor, labels: Tensor, domains: Tensor, num_domains: int) -> tuple[Tensor, Tensor]:
    """Return every domain's mean cross-entropy [K], 0 for an absent one, and which domains are present [K].

    Shapes: logits [B, C], labels [B], domains [B].
    """
    members = membership(domains, num_domains)
    losses = functional.cross_entropy(logits.float(), labels, reduction="none")
    return domain_means(losses, members), members.any(1)


def mean_of_present(values: Tensor, present: Tensor) -> Tensor:
    """Return the mean over the present domains: values [K], present [K] -> scalar."""
    return (values * present).sum() / present.sum()
