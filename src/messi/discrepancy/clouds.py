"""Padded batches of point clouds: many small ragged clouds as one rectangular tensor with a mask.

Legend: ``*`` any leading dimensions, N and P padded numbers of points, R features.
"""

from torch import Tensor


def counts(mask: Tensor) -> Tensor:
    """Return how many points each cloud has: mask [*, N] -> [*]."""
    return mask.sum(-1)


def cloud_mean(points: Tensor, mask: Tensor) -> Tensor:
    """Return the mean of each cloud: points [*, N, R], mask [*, N] -> [*, R]."""
    weights = mask / counts(mask).unsqueeze(-1)
    return (weights.unsqueeze(-1) * points).sum(-2)


def centred(points: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Split clouds into deviations from their mean (0 at the padding) and that mean."""
    mean = cloud_mean(points, mask)
    return (points - mean.unsqueeze(-2)) * mask.unsqueeze(-1), mean


def mean_cost(x: Tensor, y: Tensor, x_mask: Tensor, y_mask: Tensor) -> Tensor:
    """Return the mean squared distance between all points of x and all of y, per pair of clouds: -> [*].

    Equal to ``var(x) + var(y) + |mean(x) - mean(y)|^2``, which needs no pairwise matrix.
    """
    x_deviation, x_mean = centred(x, x_mask)
    y_deviation, y_mean = centred(y, y_mask)
    x_spread = x_deviation.square().sum((-1, -2)) / counts(x_mask)
    y_spread = y_deviation.square().sum((-1, -2)) / counts(y_mask)
    return x_spread + y_spread + (x_mean - y_mean).square().sum(-1)
