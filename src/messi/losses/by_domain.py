"""Losses per domain, and means in which every domain counts equally.

Legend: B examples, C classes, K domains.
"""

from torch import Tensor
from torch.nn import functional

from messi.discrepancy.domains import membership


def domain_mean_cross_entropy(logits: Tensor, labels: Tensor, domains: Tensor) -> Tensor:
    """Return the classification term: the mean over the domains in the batch of their mean cross-entropy, a scalar.

    Shapes: logits [B, C], labels [B], domains [B].
    """
    losses = functional.cross_entropy(logits.float(), labels, reduction="none")
    weights = 1 / (domains[:, None] == domains).sum(1)  # the weights of a domain sum to 1
    return (weights * losses).sum() / weights.sum()


def domain_cross_entropies(logits: Tensor, labels: Tensor, domains: Tensor, num_domains: int) -> tuple[Tensor, Tensor]:
    """Return the mean cross-entropy of each domain [K], 0 for an absent one, and which domains are present [K].

    Shapes: logits [B, C], labels [B], domains [B].
    """
    members = membership(domains, num_domains)
    losses = functional.cross_entropy(logits.float(), labels, reduction="none")
    return domain_means(losses, members), members.any(1)


def domain_means(values: Tensor, members: Tensor) -> Tensor:
    """Return the mean of each domain, 0 for an absent one: values [B], members bool [K, B] -> [K]."""
    return (values * members).sum(1) / members.sum(1).clamp_min(1)


def mean_of_present(values: Tensor, present: Tensor) -> Tensor:
    """Return the mean over the present domains: values [K], present bool [K] -> scalar."""
    return (values * present).sum() / present.sum()
