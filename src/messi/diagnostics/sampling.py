"""Which examples are looked at where there are too many."""

import torch
from torch import Tensor


def spaced(number: int, most: int) -> Tensor:
    """Return at most ``most`` evenly spaced places out of ``number``; of a list sorted by class these are of each."""
    kept = min(number, most)
    return torch.arange(kept) * number // max(kept, 1)


def balanced(groups: Tensor, *, most: int) -> Tensor:
    """Return at most ``most`` examples, evenly spaced and as many of each group, if it has them: [N] -> indices."""
    names = groups.unique()
    names = names[spaced(len(names), most)]
    members = [(groups == name).nonzero().squeeze(1) for name in names.tolist()]
    return torch.cat([rows[spaced(len(rows), most // len(names))] for rows in members])


def at_most_per_cell(labels: Tensor, domains: Tensor, *, most: int, stream: torch.Generator) -> Tensor:
    """Return at most ``most`` random examples of every class in every domain, in their order: [B], [B] -> indices."""
    cells = torch.stack([labels, domains], dim=1).unique(dim=0, return_inverse=True)[1]
    shuffled = torch.randperm(len(cells), generator=stream)
    order = shuffled[cells[shuffled].argsort(stable=True)]
    sizes = torch.bincount(cells)
    starts = sizes.cumsum(0) - sizes
    ranks = torch.arange(len(cells)) - starts[cells[order]]
    return order[ranks < most].sort().values
