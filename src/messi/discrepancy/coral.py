"""CORAL, correlation alignment: the distance between the means and covariances of the domains of a batch.

    mean over pairs i < j of  |mu_i - mu_j|^2 / R + |C_i - C_j|_F^2 / R^2

No covariance matrix is formed: with centred features x,  <C_i, C_j>_F = sum_ab <x_a, x_b>^2 / ((n_i - 1) (n_j - 1))
over the examples a of domain i and b of j, so one [B, B] matrix of products contains all that is needed.

Legend: B examples, K domains, R features, n_k examples of domain k.
"""

import torch
from torch import Tensor

from messi.discrepancy.domains import mean_over_pairs, membership


def coral(features: Tensor, domains: Tensor, num_domains: int) -> Tensor:
    """Return the squared distance of means and covariances, averaged over pairs of domains and over entries.

    Covariances are unbiased; the covariance of a single example is 0. Shapes: features [B, R], domains [B] -> scalar.
    """
    features = features.to(torch.promote_types(features.dtype, torch.float32))
    width = features.shape[1]
    with torch.autocast(features.device.type, enabled=False):
        members = membership(domains, num_domains)
        counts = members.sum(1, keepdim=True)
        inside, present = members.to(features.dtype), counts[:, 0] > 0
        features = features - features.mean(0)  # a common offset cancels and would only add rounding
        means = inside / counts.clamp_min(1) @ features
        rest = features - inside.mT @ means
        averaging = inside / (counts - 1).clamp_min(1)
        covariances = averaging @ (rest @ rest.mT).square() @ averaging.mT
        return mean_over_pairs(means @ means.mT, present) / width + mean_over_pairs(covariances, present) / width**2
