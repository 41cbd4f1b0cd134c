"""The two terms on the router: confident for each input, balanced over all of them."""

import torch
from torch import Tensor


def sparsity(routing: Tensor) -> Tensor:
    """Return the mean entropy of the routing distributions: routing [B, M] -> scalar in [0, log M]."""
    entropies: Tensor = torch.special.entr(routing.float()).sum(-1)
    return entropies.mean()


def balance(load: Tensor) -> Tensor:
    """Return the squared distance of the experts' mean load from uniform: load [M] -> scalar."""
    return (load.float() - 1 / len(load)).square().sum()
