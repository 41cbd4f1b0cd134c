"""Copying weights between two modules of one architecture.

Buffers are included: running statistics belong to the weights that produced them.
"""

import torch
from torch import Tensor, nn


@torch.no_grad()
def overwrite(follower: nn.Module, leader: nn.Module) -> None:
    """Copy the weights and buffers of ``leader`` into ``follower``."""
    torch._foreach_copy_(_tensors(follower), _tensors(leader))  # one launch for all, as torch.optim does


@torch.no_grad()
def approach(follower: nn.Module, leader: nn.Module, share: float) -> None:
    """Move ``follower`` by the fraction ``share`` towards ``leader``, buffers included; integer counters are copied."""
    pairs = list(zip(_tensors(follower), _tensors(leader), strict=True))
    moving = [(mine, theirs) for mine, theirs in pairs if mine.is_floating_point()]
    torch._foreach_lerp_([mine for mine, _ in moving], [theirs for _, theirs in moving], share)
    for mine, theirs in pairs:
        if not mine.is_floating_point():
            mine.copy_(theirs)


def _tensors(module: nn.Module) -> list[Tensor]:
    return list(module.state_dict().values())
