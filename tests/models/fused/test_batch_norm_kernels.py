"""Kernels for frozen BatchNorm against torch in float64; without a GPU, Triton's interpreter runs them."""

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from messi.models.fused import batch_norm_kernels
from messi.models.fused.batch_norm_kernels import frozen_norm

from .common import DEVICE, ROUNDING, rand

EPSILON = 1e-5
NAMES = ("result", "maps", "weight", "bias", "shortcut")

every_kind = pytest.mark.parametrize(
    ("shortcut", "relu"), [(True, True), (False, True), (False, False), (True, False)],
    ids=["shortcut, relu", "relu", "neither", "shortcut"],
)  # fmt: skip


def statistics(channels: int) -> tuple[Tensor, Tensor]:
    return rand(channels, seed=4), rand(channels, seed=5).square() + 0.1


def given(*shape: int, shortcut: bool = True) -> list[Tensor]:
    """Return maps, weight, bias and shortcut, none of them centred."""
    tensors = [rand(*shape) + 0.3, rand(shape[1], seed=1) + 0.5, rand(shape[1], seed=2), rand(*shape, seed=3)]
    return tensors if shortcut else tensors[:3]


def norm(maps: Tensor, weight: Tensor, bias: Tensor, shortcut: Tensor | None = None, *, relu: bool) -> Tensor:
    return frozen_norm(
        maps, weight, bias, *statistics(maps.shape[1]), epsilon=EPSILON, shortcut=shortcut, relu=relu
    )  # fmt: skip


def exact(maps: Tensor, weight: Tensor, bias: Tensor, shortcut: Tensor | None = None, *, relu: bool) -> Tensor:
    mean, variance = (one.double() for one in statistics(maps.shape[1]))
    total = functional.batch_norm(maps, mean, variance, weight, bias, eps=EPSILON)
    total = total if shortcut is None else total + shortcut
    return total.relu() if relu else total


def answers(way: Callable[..., Tensor], inputs: Sequence[Tensor], above: Tensor, *, relu: bool) -> list[Tensor]:
    """Return the result and the gradients of all inputs."""
    leaves = [one.detach().clone(memory_format=torch.preserve_format).requires_grad_() for one in inputs]
    result = way(*leaves, relu=relu)
    return [result.detach(), *torch.autograd.grad(result, leaves, above.to(result.dtype))]


def assert_exact(inputs: Sequence[Tensor], above: Tensor, *, relu: bool, tolerance: float = ROUNDING) -> None:
    found = answers(norm, inputs, above, relu=relu)
    wanted = answers(exact, [one.double() for one in inputs], above, relu=relu)
    for name, one, other in zip(NAMES, found, wanted, strict=False):
        assert one.shape == other.shape
        assert (one.double() - other).norm() <= tolerance * other.norm(), name


# One position; less than one tile of rows, and more than two; less than one tile of channels, exactly one, and more;
# and a full tile.
@pytest.mark.parametrize(
    "shape",
    [(1, 64, 1, 1), (2, 64, 3, 11), (1, 24, 3, 10), (3, 256, 3, 3), (2, 264, 2, 3), (2, 128, 2, 4)],
    ids=str,
)
@every_kind
def test_values_and_gradients(shape: tuple[int, ...], shortcut: bool, relu: bool) -> None:
    assert_exact(given(*shape, shortcut=shortcut), rand(*shape, seed=6), relu=relu)


def test_many_channels() -> None:
    assert_exact(given(2, 2048, 1, 2), rand(2, 2048, 1, 2, seed=6), relu=True)


@every_kind
@pytest.mark.parametrize("programs", [1, 4, 6])
def test_programs_share_the_rows(programs: int, shortcut: bool, relu: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven by two tiles, with one to three programs per column of tiles."""
    monkeypatch.setattr(batch_norm_kernels, "_PROGRAMS", programs)
    assert_exact(given(2, 260, 4, 7, shortcut=shortcut), rand(2, 260, 4, 7, seed=6), relu=relu)


@every_kind
@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
def test_maps_and_gradients_may_have_any_memory_layout(order: torch.memory_format, shortcut: bool, relu: bool) -> None:
    maps, weight, bias, *others = given(2, 32, 3, 5, shortcut=shortcut)
    inputs = [maps.contiguous(memory_format=order), weight, bias, *(other.mT.contiguous().mT for other in others)]
    for above in (rand(2, 32, 3, 5, seed=6), rand(2, 32, 5, 3, seed=6).mT, rand(2, 32, 1, 1, seed=6).expand_as(maps)):
        assert_exact(inputs, above, relu=relu)


def test_four_places_by_hand() -> None:
    """Mean 1 and deviation 2 make -1, 0, 1, 2 of -1, 1, 3, 5; times 3 plus 1 these are -2, 1, 4, 7."""
    maps = torch.tensor([-1.0, 1.0, 3.0, 5.0], device=DEVICE).view(1, 1, 2, 2).requires_grad_()
    shortcut = torch.tensor([5.0, -2.0, 0.0, -7.0], device=DEVICE).view(1, 1, 2, 2).requires_grad_()
    weight, bias = torch.tensor([[3.0], [1.0]], device=DEVICE).requires_grad_()
    mean, variance = torch.tensor([[1.0], [3.0]], device=DEVICE)
    result = frozen_norm(maps, weight, bias, mean, variance, epsilon=1.0, shortcut=shortcut, relu=True)
    assert result.flatten().tolist() == pytest.approx([3.0, 0.0, 4.0, 0.0])
    above = torch.tensor([1.0, 10.0, 100.0, 1000.0], device=DEVICE).view(1, 1, 2, 2)
    gradients = torch.autograd.grad(result, (maps, shortcut, weight, bias), above)
    # Two positions pass the gradient: 1 and 100, whose normalised values are -1 and 1. The slope is 3 / 2.
    wanted = [[1.5, 0.0, 150.0, 0.0], [1.0, 0.0, 100.0, 0.0], [99.0], [101.0]]
    for one, other in zip(gradients, wanted, strict=True):
        assert one.flatten().tolist() == pytest.approx(other)


def test_far_from_zero_only_the_maps_are_rounded() -> None:
    """At 1000, float32 has steps of 6e-5, and most deviations are above 0.3."""
    mean, variance = statistics(64)
    maps, weight, bias = given(2, 64, 5, 5, shortcut=False)
    result = frozen_norm(
        maps + 1000, weight, bias, mean + 1000, variance, epsilon=EPSILON, shortcut=None, relu=False
    )  # fmt: skip
    wanted = exact(maps.double(), weight.double(), bias.double(), relu=False)
    assert (result - wanted).norm() < 1e-3 * wanted.norm()


@pytest.mark.parametrize("shortcut", [True, False])
def test_nan_stays_nan_and_does_not_spread(shortcut: bool) -> None:
    inputs = given(2, 32, 3, 3, shortcut=shortcut)
    whole = norm(*inputs, relu=True)
    inputs[-1 if shortcut else 0][1, 5, 0, 2] = torch.nan
    result, gradient, *_ = answers(norm, inputs, torch.ones_like(whole), relu=True)
    assert result[1, 5, 0, 2].isnan()
    assert gradient[1, 5, 0, 2] != 0
    result[1, 5, 0, 2] = whole[1, 5, 0, 2]
    assert torch.equal(result, whole)


@every_kind
def test_the_same_input_gives_the_same_bits(shortcut: bool, relu: bool) -> None:
    inputs, above = given(2, 64, 7, 9, shortcut=shortcut), rand(2, 64, 7, 9, seed=6)
    assert all(map(torch.equal, *(answers(norm, inputs, above, relu=relu) for _ in range(2))))


@pytest.mark.parametrize("learnt", [["maps"], ["weight"], ["bias", "shortcut"], ["weight", "bias"]], ids=str)
@pytest.mark.parametrize("relu", [True, False])
def test_only_trained_parameters_get_a_gradient(learnt: list[str], relu: bool) -> None:
    inputs, above = given(2, 32, 3, 3), rand(2, 32, 3, 3, seed=6)
    wanted = dict(zip(NAMES, answers(norm, inputs, above, relu=relu), strict=True))
    for name, one in zip(NAMES[1:], inputs, strict=True):
        one.requires_grad_(name in learnt)
    norm(*inputs, relu=relu).backward(above)
    for name, one in zip(NAMES[1:], inputs, strict=True):
        assert (one.grad is not None) == (name in learnt)
        assert one.grad is None or torch.equal(one.grad, wanted[name])


@every_kind
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_results_are_rounded_once(dtype: torch.dtype, shortcut: bool, relu: bool) -> None:
    """One rounding is half a step, and a step is ``eps`` times the power of two below; sums stay in float32.

    Triton's interpreter truncates to bfloat16 instead of rounding, which is a whole step.
    """
    steps = 1.0 if (DEVICE, dtype) == ("cpu", torch.bfloat16) else 0.5
    maps, weight, bias, *others = given(2, 64, 7, 7, shortcut=shortcut)
    inputs = [maps.to(dtype), weight, bias, *(other.to(dtype) for other in others)]
    above = rand(2, 64, 7, 7, seed=6).to(dtype)
    found = answers(norm, inputs, above, relu=relu)
    wanted = answers(exact, [one.double() for one in inputs], above, relu=relu)
    for name, one, other in zip(NAMES, found, wanted, strict=False):
        if name in ("weight", "bias"):
            assert one.dtype == torch.float32
            assert (one - other).norm() < ROUNDING * other.norm(), name
        else:
            assert one.dtype == dtype
            assert ((one - other).abs() <= steps * torch.finfo(dtype).eps * other.abs() + 1e-5).all(), name
