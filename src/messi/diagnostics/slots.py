"""Which slots a run would align: a slot is an expert, two domains and a class.

    a_ijc = sigmoid(alpha rho_ic) sigmoid(alpha rho_jc),   rho = mean routing of the domain's examples of the class

Legend: K domains, P = K (K - 1) / 2 pairs i < j of them, C classes, M experts.
"""

import itertools

import torch
from torch import Tensor

from messi.core.errors import MessiError

SHARPNESS = 4.0
"""The paper's alpha."""
ROUNDING = 1e-12
"""Weights whose deviations are a smaller share of them are the same; a sum in float64 is off by some 1e-16 of it."""


def domain_pairs(num_domains: int) -> list[tuple[int, int]]:
    """Return the pairs i < j, in the order that every table of pairs has here."""
    return list(itertools.combinations(range(num_domains), 2))


def responsibilities(cells: Tensor, *, sharpness: float = SHARPNESS) -> Tensor:
    """Return a_ijc of every slot: mean routing [K, C, M] -> [P, C, M], NaN where a domain has no such class."""
    gates = torch.sigmoid(sharpness * cells)
    pairs = domain_pairs(len(cells))
    return gates[[i for i, _ in pairs]] * gates[[j for _, j in pairs]]


def correlation(first: Tensor, second: Tensor) -> float:
    """Return Pearson's r between the weights of two runs over the slots that both have; NaN where one is constant."""
    both = ~(first.isnan() | second.isnan())
    a, b = (_deviations(weights[both].double()) for weights in (first, second))
    return float(a @ b / (a.norm() * b.norm()))


def _deviations(weights: Tensor) -> Tensor:
    """Return weights less their mean; zeros where they differ by rounding alone, which would look like a pattern."""
    deviations = weights - weights.mean()
    same = deviations.norm() <= ROUNDING * weights.norm()
    return deviations.masked_fill(same, 0)


def top_slots(weights: Tensor, *, share: float) -> Tensor:
    """Return which slots are among the share (0 to 1) of them with the largest weights, at least one: a mask.

    Empty slots, those whose weight is NaN, do not count. Of equal weights the first are taken.
    """
    if not 0 < share <= 1:
        raise MessiError(f"share must be above 0 and at most 1, but is {share}.")
    flat = weights.flatten()
    number = max(round(share * int((~flat.isnan()).sum())), 1)
    chosen = torch.zeros_like(flat, dtype=torch.bool)
    chosen[flat.nan_to_num(-torch.inf).argsort(descending=True, stable=True)[:number]] = True
    return (chosen & ~flat.isnan()).view_as(weights)


def overlap(first: Tensor, second: Tensor) -> float:
    """Return Jaccard's J of two sets of slots, given as masks; NaN where both are empty."""
    return float((first & second).sum() / (first | second).sum())
