"""GELU against torch in float64; without a GPU, Triton's interpreter runs the kernels."""

import pytest
import torch
from timm.layers.activations import quick_gelu
from torch import Tensor
from torch.nn import functional

from messi.models.fused.gelu_kernels import gelu, gelu_backward, gelu_parts
from messi.models.fused.vit_kernels import sum_parts

from .common import DEVICE, ROUNDING, rand, relative_error

either_gelu = pytest.mark.parametrize("quick", [False, True])


def exact_gelu(value: Tensor, *, quick: bool) -> Tensor:
    result: Tensor = quick_gelu(value) if quick else functional.gelu(value)
    return result


@either_gelu
def test_gelu_and_its_derivative_are_exact_to_two_roundings(quick: bool) -> None:
    """The error is absolute, because values close to zero are as small as the error of erf there."""
    x = torch.linspace(-40, 40, 8001, device=DEVICE).view(1, -1)
    exact = x.double().requires_grad_()
    value = exact_gelu(exact, quick=quick)
    (grad,) = torch.autograd.grad(value.sum(), exact)
    result, parts = torch.empty_like(x), torch.empty(gelu_parts(*x.shape), x.shape[1], device=DEVICE)
    gelu(x, result, quick=quick)
    assert ((result - value).abs() < 1e-6 + 1e-7 * value.abs()).all()
    gelu_backward(torch.ones_like(x), x, parts, quick=quick)
    assert (x - grad).abs().max() < 1e-6


@either_gelu
@pytest.mark.parametrize(("rows", "width"), [(1, 192), (70, 300), (300, 130)])
def test_bias_gradient_is_the_sum_over_rows(rows: int, width: int, quick: bool) -> None:
    x, above = rand(rows, width), rand(rows, width, seed=1)
    exact = x.double().requires_grad_()
    (expected,) = torch.autograd.grad((exact_gelu(exact, quick=quick) * above).sum(), exact)
    parts = torch.empty(1, gelu_parts(rows, width), width, device=DEVICE)
    gelu_backward(above, x, parts[0], quick=quick)
    assert relative_error(x, expected) < ROUNDING
    assert relative_error(sum_parts(parts)[0], expected.sum(0)) < ROUNDING
