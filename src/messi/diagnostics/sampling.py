"""Samples of the recorded examples, for measures that cannot use all of them."""

import torch
from torch import Tensor

from messi.core import seeding

PER_CELL = 100
"""Maximum number of examples of a class in a domain, drawn at random, for energy distances and the probe."""
PAIRED_DOMAINS = 20
"""Maximum number of domains that are compared in pairs, the first ones: the pairs of hundreds would fill the disk."""


def spaced(number: int, most: int) -> Tensor:
    """Return at most ``most`` evenly spaced positions out of ``number``; in a list sorted by class, they cover all."""
    kept = min(number, most)
    return torch.arange(kept) * number // max(kept, 1)


def balanced(groups: Tensor, *, most: int) -> Tensor:
    """Return at most ``most`` evenly spaced examples, equally many of each group if it has enough: [N] -> indices."""
    names = groups.unique()
    names = names[spaced(len(names), most)]
    members = [(groups == name).nonzero().squeeze(1) for name in names.tolist()]
    return torch.cat([rows[spaced(len(rows), most // len(names))] for rows in members])


def at_most_per_cell(labels: Tensor, domains: Tensor, *, most: int, generator: torch.Generator) -> Tensor:
    """Return at most ``most`` random examples of every class in every domain, in order: [B], [B] -> indices."""
    cells = torch.stack([labels, domains], dim=1).unique(dim=0, return_inverse=True)[1]
    shuffled = torch.randperm(len(cells), generator=generator)
    order = shuffled[cells[shuffled].argsort(stable=True)]
    sizes = torch.bincount(cells)
    starts = sizes.cumsum(0) - sizes
    ranks = torch.arange(len(cells)) - starts[cells[order]]
    return order[ranks < most].sort().values


def paired_sample(labels: Tensor, domains: Tensor) -> Tensor:
    """Return the examples by which domains are compared in pairs, the same for every measure: [N], [N] -> indices."""
    rows = at_most_per_cell(labels, domains, most=PER_CELL, generator=seeding.generator("diagnostics", "cells"))
    return rows[domains[rows] < PAIRED_DOMAINS]
