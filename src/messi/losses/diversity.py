"""The term that keeps experts apart, in the two readings of the paper.

Legend: M experts, B examples, R features.
"""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

Form = Literal["cosine", "frobenius"]


def diversity(features: Tensor, *, form: Form = "cosine") -> Tensor:
    """Return how alike the experts' outputs are, summed over ordered pairs of experts: [M, B, R] -> scalar.

    ``"cosine"``, as the paper's text says: the squared batch mean of cos(h_m(x), h_n(x)).
    ``"frobenius"``, as its equation says: |H_m^T H_n / B|_F^2 with each H divided by its Frobenius norm; of
    order 1e-4, so its gradient is next to nothing at the paper's weight.
    """
    features = features.float()
    batch = features.shape[1]
    if form == "cosine":
        unit = functional.normalize(features, dim=-1)
        similarity = torch.einsum("mbr,nbr->mn", unit, unit).div(batch).square()
    else:
        unit = features / (features.norm(dim=(1, 2), keepdim=True) + 1e-12)
        # |A^T B|_F^2 = <A A^T, B B^T>: [B, B] Gram matrices instead of [R, R] products for every pair.
        gram = unit @ unit.mT / batch
        similarity = torch.einsum("mbc,nbc->mn", gram, gram)
    return similarity.sum() - similarity.diagonal().sum()
