"""Which slots a run aligns: a slot is an expert, two domains and a class.

    a_ijc = gate(rho_ic) gate(rho_jc),   rho = mean routing of the class in the domain

The gate is that of the model's loss; for a method without slots, it is the paper's ``sigmoid(4 rho)``.
Legend: K domains, P = K (K - 1) / 2 pairs i < j of them, C classes, M experts.
"""

import itertools
from typing import Any

import torch
from torch import Tensor

from messi.core.errors import MessiError
from messi.diagnostics.recording import Recording
from messi.diagnostics.routing import routing_tables
from messi.diagnostics.sampling import PAIRED_DOMAINS
from messi.diagnostics.to_json import cells
from messi.losses.ssi.slots import SlotRule, gates

ROUNDING = 1e-12
"""Weights with a smaller relative deviation are treated as constant; a float64 sum has a relative error near 1e-16."""


def domain_pairs(num_domains: int) -> list[tuple[int, int]]:
    """Return the pairs i < j in the order of every table of pairs."""
    return list(itertools.combinations(range(num_domains), 2))


def responsibilities(table: Tensor, rule: SlotRule) -> Tensor:
    """Return a_ijc of every slot: mean routing [K, C, M] -> [P, C, M], NaN where a domain lacks the class."""
    gate = gates(table, rule, num_experts=table.shape[-1])
    pairs = domain_pairs(len(table))
    return gate[[i for i, _ in pairs]] * gate[[j for _, j in pairs]]


def correlation(first: Tensor, second: Tensor) -> float:
    """Return Pearson's r between the weights of two runs over their common slots; NaN if one is constant."""
    both = ~(first.isnan() | second.isnan())
    a, b = (_deviations(weights[both].double()) for weights in (first, second))
    return float(a @ b / (a.norm() * b.norm()))


def _deviations(weights: Tensor) -> Tensor:
    """Return weights minus their mean; zeros if they differ only by rounding, which would look like a pattern."""
    deviations = weights - weights.mean()
    same = deviations.norm() <= ROUNDING * weights.norm()
    return deviations.masked_fill(same, 0)


def top_slots(weights: Tensor, *, share: float) -> Tensor:
    """Return a mask of the fraction ``share`` (0 to 1) of slots with the largest weights, at least one.

    Empty slots, which have the weight NaN, are ignored. Among equal weights, the first are selected.
    """
    if not 0 < share <= 1:
        raise MessiError(f"share must be above 0 and at most 1, but is {share}.")
    flat = weights.flatten()
    number = max(round(share * int((~flat.isnan()).sum())), 1)
    chosen = torch.zeros_like(flat, dtype=torch.bool)
    chosen[flat.nan_to_num(-torch.inf).argsort(descending=True, stable=True)[:number]] = True
    return (chosen & ~flat.isnan()).view_as(weights)


def overlap(first: Tensor, second: Tensor) -> float:
    """Return the Jaccard index of two sets of slots, given as masks; NaN if both are empty."""
    return float((first & second).sum() / (first | second).sum())


def part(recording: Recording) -> dict[str, Any]:
    """Return the responsibilities of the experts for the slots of the source domains."""
    tables = routing_tables(recording.source, recording.num_classes) if recording.source else None
    if tables is None:
        return {}
    paired = tables.by_domain_and_class[:PAIRED_DOMAINS]
    return {
        "slots": {
            "pairs": domain_pairs(len(paired)),
            "slot_weight": recording.slot_rule.slot_weight,
            "sharpness": recording.slot_rule.sharpness,
            "responsibilities": cells(responsibilities(paired, recording.slot_rule)),
        }
    }
