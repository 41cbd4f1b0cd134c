"""A loss whose gradient was found elsewhere, such as at other weights."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def with_gradient(value: Tensor, parameters: Sequence[Tensor], gradients: Sequence[Tensor]) -> Tensor:
    """Return the value of a loss as one whose gradient by each of the parameters is the one given."""
    result: Tensor = _Given.apply(value.detach(), len(parameters), *parameters, *gradients)
    return result


class _Given(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, number: int, *tensors: Tensor) -> Tensor:
        ctx.number = number
        ctx.save_for_backward(*tensors[number:])
        return value.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        scaled = [grad * gradient for gradient in ctx.saved_tensors]
        return None, None, *scaled, *[None] * ctx.number
