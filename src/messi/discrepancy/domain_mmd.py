"""Squared maximum mean discrepancy between the domains of a batch, as the MMD method of DomainBed has it.

    mean over pairs i < j of  E k(x, x') + E k(y, y') - 2 E k(x, y),    k(a, b) = sum_g exp(-g |a - b|^2)

The expectations run over all pairs of examples, equal ones included. The kernel is another than that of
:mod:`messi.discrepancy.mmd`, which has the bandwidths of the MESSI paper.

Legend: B examples, K domains, R features.
"""

import torch
from torch import Tensor

from messi.discrepancy.domains import mean_over_pairs, membership

GAMMAS = (1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3)


def domain_mmd(features: Tensor, domains: Tensor, num_domains: int) -> Tensor:
    """Return MMD^2 averaged over the pairs of domains: features [B, R], domains [B] -> scalar."""
    features = features.to(torch.promote_types(features.dtype, torch.float32))
    with torch.autocast(features.device.type, enabled=False):
        # Differences first: |a|^2 + |b|^2 - 2 <a, b> would lose the small distances, which large g tell apart.
        squared = torch.cdist(features, features, compute_mode="donot_use_mm_for_euclid_dist").square()
        kernel = sum((torch.exp(-gamma * squared) for gamma in GAMMAS), torch.zeros_like(squared))
        members = membership(domains, num_domains)
        counts = members.sum(1, keepdim=True)
        averaging = members / counts.clamp_min(1).to(features.dtype)
        return mean_over_pairs(averaging @ kernel @ averaging.mT, counts[:, 0] > 0)
