"""Matrix products in a lower precision: copies of their parameters, and float32 gradients."""

from collections.abc import Sequence

import torch
from torch import Tensor


def low_copies(parameters: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """Return copies of the parameters in another precision."""
    copies = [torch.empty_like(parameter, dtype=dtype) for parameter in parameters]
    with torch.no_grad():
        torch._foreach_copy_(copies, list(parameters))  # one launch for all, as torch.optim does
    return copies


def weight_grad(left: Tensor, right: Tensor) -> Tensor:
    """Return the product over the rows in float32, for factors of any precision: [*, N, V], [*, N, K] -> [*, V, K]."""
    if left.dtype == torch.float32:
        return left.mT @ right
    multiply = torch.mm if left.ndim == 2 else torch.bmm
    return multiply(left.mT, right, out_dtype=torch.float32)
