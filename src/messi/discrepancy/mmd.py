"""Squared maximum mean discrepancy between many pairs of small point clouds at once.

    MMD^2(P, Q) = E k(x, x') + E k(y, y') - 2 E k(x, y),    k(a, b) = sum_s exp(-|a - b|^2 / (2 s^2))

The expectations run over all pairs, equal ones included, as in the paper's formula. The paper gives the
bandwidths s = 1, 2, 4, 8, 16 and not the form of the kernel; with unnormalised features of a few hundred
dimensions, ``|a - b|^2 / s`` would leave every kernel at zero, ``|a - b|^2 / (2 s^2)`` does not.

Legend: ``*`` leading dimensions, N and P padded numbers of points, R features.
"""

import torch
from torch import Tensor

from messi.discrepancy.clouds import counts

BANDWIDTHS = (1.0, 2.0, 4.0, 8.0, 16.0)


def mmd_squared(
    x: Tensor,
    y: Tensor,
    x_mask: Tensor,
    y_mask: Tensor,
    *,
    bandwidths: tuple[float, ...] = BANDWIDTHS,
) -> Tensor:
    """Return MMD^2 of each pair of clouds: x [*, N, R], y [*, P, R], masks [*, N] and [*, P] -> [*]."""
    within_x = _mean_kernel(x, x, x_mask, x_mask, bandwidths)
    within_y = _mean_kernel(y, y, y_mask, y_mask, bandwidths)
    return within_x + within_y - 2 * _mean_kernel(x, y, x_mask, y_mask, bandwidths)


def _mean_kernel(x: Tensor, y: Tensor, x_mask: Tensor, y_mask: Tensor, bandwidths: tuple[float, ...]) -> Tensor:
    x, y = x * x_mask.unsqueeze(-1), y * y_mask.unsqueeze(-1)
    squared = torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist").square()
    kernel = sum((torch.exp(squared / (-2 * s * s)) for s in bandwidths), torch.zeros_like(squared))
    pairs = x_mask.unsqueeze(-1) & y_mask.unsqueeze(-2)
    return (kernel * pairs).sum((-1, -2)) / (counts(x_mask) * counts(y_mask))
