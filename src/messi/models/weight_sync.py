"""Copying weights between two modules of one architecture.

Buffers are included: running statistics belong to the weights that produced them.
"""

import torch
from torch import Tensor, nn


@torch.no_grad()
def overwrite(follower: nn.Module, leader: nn.Module) -> None:
    """Copy the weights and buffers of ``leader`` into ``follower``."""
    pairs = _pairs(follower, leader)
    # One launch for all, as torch.optim does.
    torch._foreach_copy_([mine for mine, _ in pairs], [theirs for _, theirs in pairs])


@torch.no_grad()
def approach(follower: nn.Module, leader: nn.Module, share: float) -> None:
    """Move ``follower`` by the fraction ``share`` towards ``leader``, buffers included; integer counters are copied."""
    pairs = _pairs(follower, leader)
    moving = [(mine, theirs) for mine, theirs in pairs if mine.is_floating_point()]
    torch._foreach_lerp_([mine for mine, _ in moving], [theirs for _, theirs in moving], share)
    for mine, theirs in pairs:
        if not mine.is_floating_point():
            mine.copy_(theirs)


def _pairs(follower: nn.Module, leader: nn.Module) -> list[tuple[Tensor, Tensor]]:
    """Return the corresponding tensors of two modules, without those of a frozen network that they share."""
    pairs = zip(follower.state_dict().values(), leader.state_dict().values(), strict=True)
    return [(mine, theirs) for mine, theirs in pairs if mine.data_ptr() != theirs.data_ptr()]
