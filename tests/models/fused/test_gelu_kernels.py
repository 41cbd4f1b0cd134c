"""A linear layer with GELU against torch in float64; without a GPU, Triton's interpreter runs the kernels."""

import pytest
import torch
from timm.layers.activations import quick_gelu
from torch import Tensor
from torch.nn import functional

from messi.models.fused.gelu_kernels import linear_gelu, linear_gelu_backward, linear_parts
from messi.models.fused.vit_kernels import sum_parts

from .common import DEVICE, ROUNDING, rand, relative_error

either_gelu = pytest.mark.parametrize("quick", [False, True])


def exact_gelu(value: Tensor, *, quick: bool) -> Tensor:
    result: Tensor = quick_gelu(value) if quick else functional.gelu(value)
    return result


@either_gelu
@pytest.mark.parametrize(("rows", "inner", "width"), [(1, 48, 192), (130, 48, 192), (128, 64, 128), (300, 70, 130)])
def test_a_layer_with_gelu_and_its_gradient(rows: int, inner: int, width: int, quick: bool) -> None:
    x, weight, bias, after = (
        rand(rows, inner),
        rand(width, inner, seed=1),
        rand(width, seed=2),
        rand(inner, width, seed=3),
    )
    above = rand(rows, inner, seed=4)
    exact = (x.double() @ weight.double().mT + bias.double()).requires_grad_()
    value = exact_gelu(exact, quick=quick)
    (expected,) = torch.autograd.grad((value @ after.double().mT * above.double()).sum(), exact)
    hidden, active = torch.empty(rows, width, device=DEVICE), torch.empty(rows, width, device=DEVICE)
    linear_gelu(x, weight, bias, hidden, active, quick=quick)
    assert relative_error(hidden, exact) < ROUNDING
    assert relative_error(active, value) < ROUNDING
    parts = torch.empty(1, linear_parts(rows), width, device=DEVICE)
    linear_gelu_backward(above, after, hidden, parts[0], quick=quick)
    assert relative_error(hidden, expected) < ROUNDING
    assert relative_error(sum_parts(parts)[0], expected.sum(0)) < ROUNDING


@either_gelu
def test_gelu_and_its_derivative_are_exact_to_two_roundings(quick: bool) -> None:
    """The error is absolute, because values close to zero are as small as the error of erf there."""
    x, one = torch.linspace(-40, 40, 8001, device=DEVICE).view(-1, 1), torch.ones(1, 1, device=DEVICE)
    exact = x.double().requires_grad_()
    value = exact_gelu(exact, quick=quick)
    (grad,) = torch.autograd.grad(value.sum(), exact)
    hidden, active = torch.empty_like(x), torch.empty_like(x)
    linear_gelu(x, one, torch.zeros(1, device=DEVICE), hidden, active, quick=quick)
    assert torch.equal(hidden, x)
    assert ((active - value).abs() < 1e-6 + 1e-7 * value.abs()).all()
    parts = torch.empty(linear_parts(len(x)), 1, device=DEVICE)
    linear_gelu_backward(torch.ones_like(x), one, hidden, parts, quick=quick)
    assert (hidden - grad).abs().max() < 1e-6
