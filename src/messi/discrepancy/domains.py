"""Domain membership in a batch, and the mean over pairs of domains; all shapes are fixed, for captured steps.

A batch need not contain every domain: absent domains have no members and are not part of any mean or pair.
Legend: B examples, K domains.
"""

import torch
from torch import Tensor


def membership(domains: Tensor, num_domains: int) -> Tensor:
    """Return which examples belong to which domain: domains [B] -> bool [K, B]."""
    return torch.arange(num_domains, device=domains.device)[:, None] == domains


def ranks(members: Tensor) -> Tensor:
    """Return the index of every example within its domain, from 0: members bool [K, B] -> [B]."""
    return (members.cumsum(1) * members).sum(0) - 1


def mean_over_pairs(gram: Tensor, present: Tensor) -> Tensor:
    """Return the mean of |v_i - v_j|^2 over the pairs i < j of present domains, a scalar; 0 if there is no pair.

    Args:
        gram: [K, K] inner products <v_i, v_j>; the entries of absent domains are ignored.
        present: [K] True for the domains in the batch.

    """
    pairs = present & present[:, None]
    products = torch.where(pairs, gram, 0)
    number = present.sum()
    # sum over i < j of |v_i - v_j|^2 = K sum_i |v_i|^2 - |sum_i v_i|^2
    total = number * products.diagonal().sum() - products.sum()
    return total / (number * (number - 1) / 2).clamp_min(1)
