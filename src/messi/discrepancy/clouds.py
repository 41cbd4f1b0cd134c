"""Padded batches of point clouds: many small ragged clouds as one rectangular tensor with a mask.

Legend: ``*`` any leading dimensions, N and P padded numbers of points, R features.
"""

import torch
from torch import Tensor


def counts(mask: Tensor) -> Tensor:
    """Return the number of points of each cloud: mask [*, N] -> [*]."""
    return mask.sum(-1)


def averaging(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the weights whose product with a cloud is its mean: mask [*, N] -> [*, 1, N], 0 at the padding."""
    return (mask / counts(mask).to(dtype).unsqueeze(-1)).unsqueeze(-2)


def centred(points: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Subtract the rounded mean from each cloud [*, N, R]; return the centred cloud, the mean, and the mean left in it.

    The mean left in the centred cloud [*, R] is the rounding error of the first, and is not zero far from the origin.
    The sum of both is more accurate than a single number can be.
    """
    weights = averaging(mask, points.dtype)
    mean = weights @ points
    rest = points - mean
    return rest, mean.squeeze(-2), (weights @ rest).squeeze(-2)
