"""The slots of a batch: which cells are aligned, how strongly, and the controls that select others.

A cell is a (class, domain) pair that occurs in the batch; a slot is an expert and two cells of one class.

    a_mijc = gate(rho_m,i,c) gate(rho_m,j,c),   rho = mean routing mass of the cell, detached

    sigmoid    gate(rho) = sigmoid(alpha rho)             the paper's; at least 1/2
    product    gate(rho) = rho
    centred    gate(rho) = sigmoid(alpha (M rho - 1))     1/2 for the load of a uniform router, for any M

Legend: B examples, M experts, G cells, N padded examples per cell, S slots per expert.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from messi.discrepancy.clouds import counts

Selector = Literal["routing", "global", "random", "domain"]
SlotWeight = Literal["sigmoid", "product", "centred"]
_CERTAIN: dict[SlotWeight, float] = {"sigmoid": 1e6, "product": 1.0, "centred": 1e6}
"""A routing mass whose gate is 1."""


@dataclass(frozen=True)
class Slots:
    """The cells of a batch and the pairs of cells that share a class."""

    members: Tensor
    """[G, N] indices into the batch; 0 at the padding."""
    mask: Tensor
    """[G, N] True where ``members`` holds an example."""
    first: Tensor
    """[S] cell of the first domain of each pair."""
    second: Tensor
    """[S] cell of the second domain."""


def find_slots(labels: Tensor, domains: Tensor) -> Slots:
    """Group a batch into cells and list the pairs of cells that share a class: labels [B], domains [B]."""
    classes = torch.unique(labels, return_inverse=True)[1]
    names, domain_ids = torch.unique(domains, return_inverse=True)
    cells, cell_of, sizes = torch.unique(classes * len(names) + domain_ids, return_inverse=True, return_counts=True)
    order = torch.argsort(cell_of, stable=True)
    starts = sizes.cumsum(0) - sizes
    places = torch.arange(len(order), device=order.device) - starts[cell_of[order]]
    shape = (len(cells), int(sizes.max()) if len(sizes) else 0)
    members = torch.zeros(shape, dtype=torch.long, device=order.device)
    members[cell_of[order], places] = order
    mask = torch.arange(shape[1], device=order.device) < sizes[:, None]
    class_of_cell = cells // max(len(names), 1)
    first, second = torch.triu(class_of_cell[:, None] == class_of_cell, diagonal=1).nonzero(as_tuple=True)
    return Slots(members=members, mask=mask, first=first, second=second)


@dataclass(frozen=True)
class SlotRule:
    """How the routing masses of its two cells determine the weight of a slot."""

    slot_weight: SlotWeight = "sigmoid"
    sharpness: float = 4.0
    """alpha"""


def gates(mass: Tensor, rule: SlotRule, *, num_experts: int) -> Tensor:
    """Return the gates of cells with these routing masses, of any shape; the weight of a slot is the product of two."""
    if rule.slot_weight == "product":
        return mass
    if rule.slot_weight == "centred":
        mass = num_experts * mass - 1
    return torch.sigmoid(rule.sharpness * mass)


def slot_weights(routing: Tensor, slots: Slots, rule: SlotRule) -> Tensor:
    """Return a_mijc for every expert and slot, detached: routing [B, M] -> [M, S]."""
    mass = (routing.detach().float().T[:, slots.members] * slots.mask).sum(-1) / counts(slots.mask)
    gate = gates(mass, rule, num_experts=len(mass))
    return gate[:, slots.first] * gate[:, slots.second]


def select(
    routing: Tensor, labels: Tensor, *, selector: Selector, num_classes: int, slot_weight: SlotWeight = "sigmoid"
) -> tuple[Tensor, Tensor]:
    """Return the routing [B, M] and the classes [B] from which the loss finds and weights its slots.

    - ``routing``: MESSI itself; both are returned unchanged.
    - ``global``: every slot has the weight 1.
    - ``random``: the slot weights of each class are permuted at random among the experts: the same weights, and
      therefore the same sparsity, in other places.
    - ``domain``: classes are ignored, so whole domains are aligned, weighted by the routing mass of the domain.

    Classes below zero, those of the empty places of a memory (``recent``), stay as they are.
    """
    if selector == "global":
        return torch.full_like(routing, _CERTAIN[slot_weight]), labels
    if selector == "random":
        dealt = torch.rand(num_classes, routing.shape[1], device=routing.device).argsort(1)
        return routing.gather(1, dealt[labels.clamp_min(0)]), labels
    if selector == "domain":
        return routing, labels.clamp_max(0)
    return routing, labels
