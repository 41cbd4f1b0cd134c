"""The two terms on the router: confident for each input, balanced over all of them."""

import torch
from torch import Tensor


def sparsity(routing: Tensor) -> Tensor:
    """Return the mean entropy of the routing distributions: routing [B, M] -> scalar in [0, log M]."""
    routing = routing.float()
    # Not torch.special.entr: its gradient is infinite at 0, which a softmax does reach, and 0 times inf is NaN.
    return -(routing * routing.clamp_min(torch.finfo(routing.dtype).tiny).log()).sum(-1).mean()


def balance(load: Tensor) -> Tensor:
    """Return the squared distance of the experts' mean load from uniform: load [M] -> scalar."""
    return (load.float() - 1 / len(load)).square().sum()
