"""Experts for the tokens that chose them, as functions with gradients over ``moe_row_`` and ``moe_product_kernels``.

An expert that a token did not choose has a gate of zero: its output and its gradients would be multiplied by zero, and
are not computed. Products are in the precision of autocast, gradients of parameters in float32.
Legend: N tokens, E experts, R rows (chosen pairs of token and expert), W width, K chosen experts of a token.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from messi.models.fused import moe_product_kernels as by_weights
from messi.models.fused import moe_row_kernels as by_rows
from messi.models.fused.precision import low_copies


class ChosenExperts:
    """The outputs of the experts that tokens chose."""

    def __init__(
        self, tokens: Tensor, chosen: Tensor, most: int, parameters: tuple[Tensor, ...], dtype: torch.dtype
    ) -> None:
        """Apply experts to tokens [N, W] where ``chosen`` [N, E]; no token has more than ``most`` of them."""
        self._plan = by_rows.plan(chosen, most)
        self._rows: Tensor = _Apply.apply(tokens, *parameters, self._plan, dtype)

    def mixed(self, gates: Tensor) -> Tensor:
        """Return the sum of the outputs of each token, weighted by gates [N, E]: [N, W]."""
        result: Tensor = _Mix.apply(self._rows, gates, self._plan)
        return result

    def products(self, slots: Tensor) -> Tensor:
        """Return the inner products of the outputs of each token: slots [N, K, E] -> [N, K, K].

        A slot marks one expert, or none, whose products are zero.
        """
        places = ((self._plan.places + 1)[:, None] * slots).sum(-1, dtype=torch.int32) - 1
        result: Tensor = _Products.apply(self._rows, places)
        return result


class _Apply(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        tokens: Tensor,
        weight_in: Tensor,
        bias_in: Tensor,
        weight_out: Tensor,
        bias_out: Tensor,
        plan: by_rows.Plan,
        dtype: torch.dtype,
    ) -> Tensor:
        low_in, low_out = low_copies([weight_in, weight_out], dtype)
        x = by_rows.gather(tokens.contiguous(), plan, dtype)
        hidden, active = by_weights.multiply_gelu(x, low_in, bias_in, plan)
        if any(ctx.needs_input_grad):
            ctx.plan, ctx.dtype = plan, tokens.dtype
            ctx.save_for_backward(x, hidden, active, low_in, low_out)
        return by_weights.multiply(active, low_out, bias_out, plan)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        plan, (x, hidden, active, low_in, low_out) = ctx.plan, ctx.saved_tensors
        hidden_grad = by_weights.multiply_gelu_backward(grad, low_out.mT, hidden, plan)
        return (
            by_rows.mix(by_weights.multiply(hidden_grad, low_in.mT, None, plan), None, plan, ctx.dtype),
            by_weights.weight_grads(x, hidden_grad, plan),
            by_weights.bias_grads(hidden_grad, plan),
            by_weights.weight_grads(active, grad, plan),
            by_weights.bias_grads(grad, plan),
            None,
            None,
        )


class _Mix(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, gates: Tensor, plan: by_rows.Plan) -> Tensor:
        ctx.plan = plan
        ctx.save_for_backward(rows, gates.contiguous())
        return by_rows.mix(rows, gates.contiguous(), plan, rows.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        rows, gates = ctx.saved_tensors
        return *by_rows.mix_backward(grad.contiguous(), rows, gates, ctx.plan), None


class _Products(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, places: Tensor) -> Tensor:
        ctx.save_for_backward(rows, places)
        return by_rows.products(rows, places)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return by_rows.products_backward(grad, *ctx.saved_tensors), None
