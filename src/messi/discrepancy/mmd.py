"""Squared maximum mean discrepancy, between pairs of small point clouds and between the domains of a batch.

    MMD^2(P, Q) = E k(x, x') + E k(y, y') - 2 E k(x, y)

The expectations are over all pairs, including each point with itself, as in the paper's formula. The two functions
use different kernels:

    mmd_squared    k(a, b) = sum_s exp(-|a - b|^2 / (2 s^2))    the MESSI paper's bandwidths s = 1, 2, 4, 8, 16
    domain_mmd     k(a, b) = sum_g exp(-g |a - b|^2)            DomainBed's g = 0.001, ..., 1000

The MESSI paper does not state the form of its kernel. With unnormalised features of a few hundred dimensions,
``|a - b|^2 / s`` would make every kernel value zero; ``|a - b|^2 / (2 s^2)`` does not.

Legend: ``*`` leading dimensions, N and P padded numbers of points, R features, B examples, K domains.
"""

import torch
from torch import Tensor

from messi.discrepancy.clouds import counts
from messi.discrepancy.domains import mean_over_pairs, membership

BANDWIDTHS = (1.0, 2.0, 4.0, 8.0, 16.0)
_GAMMAS = (1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3)


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
    squared = _squared_distances(x, y)
    kernel = sum((torch.exp(squared / (-2 * s * s)) for s in bandwidths), torch.zeros_like(squared))
    pairs = x_mask.unsqueeze(-1) & y_mask.unsqueeze(-2)
    return (kernel * pairs).sum((-1, -2)) / (counts(x_mask) * counts(y_mask))


def domain_mmd(features: Tensor, domains: Tensor, num_domains: int) -> Tensor:
    """Return MMD^2 averaged over the pairs of domains: features [B, R], domains [B] -> scalar."""
    features = features.to(torch.promote_types(features.dtype, torch.float32))
    with torch.autocast(features.device.type, enabled=False):
        squared = _squared_distances(features, features)
        kernel = sum((torch.exp(-gamma * squared) for gamma in _GAMMAS), torch.zeros_like(squared))
        members = membership(domains, num_domains)
        sizes = members.sum(1, keepdim=True)
        averaging = members / sizes.clamp_min(1).to(features.dtype)
        return mean_over_pairs(averaging @ kernel @ averaging.mT, sizes[:, 0] > 0)


def _squared_distances(x: Tensor, y: Tensor) -> Tensor:
    """Return |x_p - y_q|^2 from differences: |x|^2 + |y|^2 - 2 <x, y> would lose small distances."""
    return torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist").square()
