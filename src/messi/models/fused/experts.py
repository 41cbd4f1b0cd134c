"""Experts in the precision of autocast.

Autocast would copy each parameter separately and compute its gradient in the lower precision. Here one launch copies
them all, and their gradients are float32.
Legend: M experts, N inputs, W width.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from messi.models.fused.precision import low_copies, weight_grad


class LowPrecisionExperts(torch.autograd.Function):
    """The function of ``Experts`` in a lower precision, with float32 gradients of the parameters."""

    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight_in: Tensor,
        bias_in: Tensor,
        weight_out: Tensor,
        bias_out: Tensor,
        dtype: torch.dtype,
    ) -> Tensor:
        """Return the outputs of the experts for features [N, W]: [M, N, W] in ``dtype``."""
        low = low_copies([weight_in, bias_in, weight_out, bias_out], dtype)
        x = features.to(dtype).expand(len(weight_in), -1, -1)
        hidden = torch.baddbmm(low[1], x, low[0])
        active = functional.gelu(hidden)
        ctx.save_for_backward(x, hidden, active, low[0], low[2])
        ctx.dtype = features.dtype
        return torch.baddbmm(low[3], active, low[2])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of features and parameters."""
        x, hidden, active, weight_in, weight_out = ctx.saved_tensors
        hidden_grad = torch.ops.aten.gelu_backward(grad @ weight_out.mT, hidden)
        return (
            (hidden_grad @ weight_in.mT).sum(0, dtype=torch.float32).to(ctx.dtype),
            weight_grad(x, hidden_grad),
            hidden_grad.sum(1, keepdim=True, dtype=torch.float32),
            weight_grad(active, grad),
            grad.sum(1, keepdim=True, dtype=torch.float32),
            None,
        )
