"""Padded batches of point clouds: many small ragged clouds as one rectangular tensor with a mask.

Legend: ``*`` any leading dimensions, N and P padded numbers of points, R features.
"""

import torch
from torch import Tensor


def counts(mask: Tensor) -> Tensor:
    """Return how many points each cloud has: mask [*, N] -> [*]."""
    return mask.sum(-1)


def averaging(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the weights whose product with a cloud is its mean: mask [*, N] -> [*, 1, N], 0 at the padding."""
    return (mask / counts(mask).to(dtype).unsqueeze(-1)).unsqueeze(-2)


def centred(points: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Subtract from each cloud [*, N, R] its mean as rounded; return the rest, that mean, and the mean of the rest.

    The mean of the rest [*, R] is what rounding left: far from the origin it is not zero, and adding it to the
    rounded mean gives a mean that is more accurate than one number can be.
    """
    weights = averaging(mask, points.dtype)
    mean = weights @ points
    rest = points - mean
    return rest, mean.squeeze(-2), (weights @ rest).squeeze(-2)
