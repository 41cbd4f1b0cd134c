"""What keeps DynMoE's experts apart and modest: two terms on the directions that tokens are compared with.

    diversity  = |(U U^T - I) o mask|_F     U the directions divided by their norms
    simplicity = mean of |w_e|

over the experts in use. Legend: E slots for experts, W width.
"""

import torch
from torch import Tensor
from torch.nn import functional


def direction_diversity(directions: Tensor, active: Tensor) -> Tensor:
    """Return how far the active directions are from orthogonal: [E, W], [E] -> scalar."""
    unit = functional.normalize(directions.float(), dim=-1)
    identity = torch.eye(len(unit), dtype=unit.dtype, device=unit.device)
    distance: Tensor = ((unit @ unit.mT - identity) * (active[:, None] & active)).norm()
    return distance


def direction_simplicity(directions: Tensor, active: Tensor) -> Tensor:
    """Return the mean length of the active directions, 0 when none is: [E, W], [E] -> scalar."""
    lengths: Tensor = directions.float().norm(dim=-1)
    return (lengths * active).sum() / active.sum().clamp_min(1)
