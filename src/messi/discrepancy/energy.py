"""Energy distance between groups of points (Szekely and Rizzo, 2013): zero if and only if their distributions agree.

    D(P, Q) = 2 E|x - y| - E|x - x'| - E|y - y'|

The expectations are over all pairs, including each point with itself, so D is never negative; some authors take its
root. D has
the unit of the features: scaling the points by two doubles it.
Legend: ``*`` leading dimensions, B points, R features, K groups.
"""

import torch
from torch import Tensor

from messi.discrepancy.domains import membership


def energy_distances(points: Tensor, groups: Tensor, num_groups: int) -> Tensor:
    """Return D between every two groups, in float64; NaN if one of them has no points.

    Shapes: points [*, B, R], groups [B] from 0 to K-1 -> [*, K, K].
    """
    members = membership(groups, num_groups).double()
    averaging = members / members.sum(1, keepdim=True).clamp_min(1)
    # The faster mode is only accurate to the root of the rounding error, and the terms below cancel.
    lengths = torch.cdist(points.double(), points.double(), compute_mode="donot_use_mm_for_euclid_dist")
    means = averaging @ lengths @ averaging.mT
    within = means.diagonal(dim1=-2, dim2=-1)
    present = members.any(1)
    distances = 2 * means - within.unsqueeze(-1) - within.unsqueeze(-2)
    return distances.masked_fill(~(present[:, None] & present), torch.nan)
