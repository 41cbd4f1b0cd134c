"""Who belongs to which domain of a batch, and the mean over pairs of domains; all of fixed shape, for recorded steps.

A batch need not hold every domain: absent ones have no members, and no mean or pair counts them.
Legend: B examples, K domains.
"""

import torch
from torch import Tensor


def membership(domains: Tensor, num_domains: int) -> Tensor:
    """Return which examples are in which domain: domains [B] -> bool [K, B]."""
    return torch.arange(num_domains, device=domains.device)[:, None] == domains


def ranks(members: Tensor) -> Tensor:
    """Return the place of every example among those of its domain, from 0: members [K, B] -> [B]."""
    return (members.cumsum(1) * members).sum(0) - 1


def mean_over_pairs(gram: Tensor, present: Tensor) -> Tensor:
    """Return the mean of |v_i - v_j|^2 over the pairs i < j of present domains; 0 where there is no pair.

    Args:
        gram: [K, K] inner products <v_i, v_j>, of any numbers where a domain is absent.
        present: [K] True for the domains in the batch.

    """
    pairs = present & present[:, None]
    products = torch.where(pairs, gram, 0)
    number = present.sum()
    # sum over i < j of |v_i - v_j|^2 = K sum_i |v_i|^2 - |sum_i v_i|^2
    total = number * products.diagonal().sum() - products.sum()
    return total / (number * (number - 1) / 2).clamp_min(1)
