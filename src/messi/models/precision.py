"""Parameters of matrix products in a lower precision, and their gradients in float32."""

from collections.abc import Sequence

import torch
from torch import Tensor


def low_copies(parameters: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """Return copies in another precision."""
    copies = [torch.empty_like(parameter, dtype=dtype) for parameter in parameters]
    with torch.no_grad():
        torch._foreach_copy_(copies, list(parameters))  # as torch.optim does: one launch for all
    return copies


def weight_grad(left: Tensor, right: Tensor) -> Tensor:
    """Return the product over the rows in float32, whatever it is made of: [*, N, V], [*, N, K] -> [*, V, K]."""
    if left.dtype == torch.float32:
        return left.mT @ right
    multiply = torch.mm if left.ndim == 2 else torch.bmm
    return multiply(left.mT, right, out_dtype=torch.float32)
