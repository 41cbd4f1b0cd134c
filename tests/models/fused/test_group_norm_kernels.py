"""Kernels for ReLU and GroupNorm against torch in float64; without a GPU, Triton's interpreter runs them."""

import copy
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from messi.core import gpu_kernels
from messi.core.seeding import deterministic
from messi.models import mixstyle
from messi.models.fused.group_norm_kernels import relu_group_norm
from messi.models.fused.small import fuse
from messi.models.small import small_cnn, tiny_cnn

from .common import DEVICE, ROUNDING, rand, relative_error

Build = Callable[..., tuple[nn.Module, int]]
Switch = Callable[[bool], None]

on_a_gpu = pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA device")
both_networks = pytest.mark.parametrize("build", [small_cnn, tiny_cnn])


def norm(maps: Tensor, weight: Tensor, bias: Tensor, *, epsilon: float = 1e-5) -> Tensor:
    return relu_group_norm(maps, weight, bias, groups=8, epsilon=epsilon, dtype=maps.dtype)


def exact(maps: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return functional.group_norm(maps.relu(), 8, weight, bias)


def given(*shape: int) -> list[Tensor]:
    """Return maps, weight and bias, none of them centred."""
    return [rand(*shape) + 0.3, rand(shape[1], seed=1) + 0.5, rand(shape[1], seed=2)]


def answers(way: Callable[..., Tensor], inputs: Sequence[Tensor], above: Tensor) -> list[Tensor]:
    """Return the result and the gradients of maps, weight and bias."""
    leaves = [one.detach().clone(memory_format=torch.preserve_format).requires_grad_() for one in inputs]
    result = way(*leaves)
    return [result.detach(), *torch.autograd.grad(result, leaves, above.to(result.dtype))]


def assert_exact(inputs: Sequence[Tensor], above: Tensor, tolerance: float = ROUNDING) -> None:
    found = answers(norm, inputs, above)
    wanted = answers(exact, [one.double() for one in inputs], above)
    for name, one, other in zip(("result", "maps", "weight", "bias"), found, wanted, strict=True):
        assert one.shape == other.shape
        assert relative_error(one, other) < tolerance, name


# One position and one image; less than a tile; a full tile; 4, 8 and 16 channels per group; and maps of two tiles.
@pytest.mark.parametrize(
    "shape",
    [(1, 32, 1, 1), (3, 128, 1, 1), (2, 32, 5, 7), (1, 64, 28, 28), (2, 128, 4, 4), (2, 128, 14, 14), (1, 32, 46, 50)],
    ids=str,
)
def test_values_and_gradients(shape: tuple[int, ...]) -> None:
    assert_exact(given(*shape), rand(*shape, seed=3))


@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
def test_maps_and_gradients_may_have_any_memory_layout(order: torch.memory_format) -> None:
    maps, *others = given(2, 32, 3, 5)
    for above in (rand(2, 32, 3, 5, seed=3), rand(2, 32, 5, 3, seed=3).mT, rand(2, 32, 1, 1, seed=3).expand_as(maps)):
        assert_exact([maps.contiguous(memory_format=order), *others], above)


def test_a_group_by_hand() -> None:
    """-3, 0, 0, 4 become 0, 0, 0, 4, with the mean 1 and the variance 3; the gradient 0, 0, 0, 1 stays within it."""
    maps = torch.tensor([-3.0, 0.0, 0.0, 4.0], device=DEVICE).repeat(8).view(1, 32, 1, 1).requires_grad_()
    ones = torch.ones(32, device=DEVICE)
    result = norm(maps, 2 * ones, ones, epsilon=0.0)
    assert result.flatten()[:4].tolist() == pytest.approx([1 - 2 / 3**0.5] * 3 + [1 + 6 / 3**0.5])
    result = norm(maps, ones, ones, epsilon=1.0)  # the deviation is 2 now
    (gradient,) = torch.autograd.grad(result.flatten()[3], maps)
    # (1 - 1/4 - 9/16) / 2 for the last; the others are not above zero, and nothing flows through them.
    assert gradient.flatten().tolist() == pytest.approx([0.0] * 3 + [3 / 32] + [0.0] * 28)


@pytest.mark.parametrize("level", [0.7, 0.0, -0.7])
def test_flat_maps_give_the_bias_and_only_positive_ones_get_a_gradient(level: float) -> None:
    """A mean of 0.7 may be off by some steps of 2^-24; 1 / deviation is 316."""
    _, weight, bias = given(2, 32, 5, 5)
    maps, above = torch.full((2, 32, 5, 5), level, device=DEVICE), rand(2, 32, 5, 5, seed=3)
    result, gradient, weight_grad, _ = answers(norm, [maps, weight, bias], above)
    rounding = 316 * 2**-22
    assert ((result - bias[:, None, None]).abs() <= rounding * weight.abs().max()).all()
    assert (weight_grad.abs() <= rounding * above.abs().sum((0, 2, 3))).all()
    wanted = answers(exact, [one.double() for one in (maps, weight, bias)], above)[1]
    assert bool(wanted.any()) == (level > 0)
    assert (gradient - wanted).norm() <= ROUNDING * wanted.norm()


def test_far_from_zero_only_the_mean_is_rounded() -> None:
    """At 1000, float32 has steps of 6e-5, and the deviation is 1."""
    maps, *others = given(2, 64, 7, 7)
    assert_exact([maps + 1000, *others], rand(2, 64, 7, 7, seed=3), tolerance=1e-4)


def test_nan_stays_nan_and_in_its_group() -> None:
    maps, *others = given(2, 32, 3, 3)
    whole = norm(maps, *others)
    maps[1, 5, 0, 2] = torch.nan
    result = norm(maps, *others)
    assert result[1, 4:8].isnan().all()
    result[1, 4:8] = whole[1, 4:8]
    assert torch.equal(result, whole)


@pytest.fixture
def by_kernels(monkeypatch: pytest.MonkeyPatch) -> Switch:
    """Return a switch between kernels, in float32, and torch's modules."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda _: torch.float32)
    return lambda on: monkeypatch.setattr(gpu_kernels, "run_under_autocast", lambda _: on)


def network_answers(network: nn.Module, images: Tensor, above: Tensor) -> list[Tensor]:
    """Return the features and the gradients of all parameters."""
    features = network(images)
    return [features.detach(), *torch.autograd.grad(features, list(network.parameters()), above.to(features.dtype))]


@pytest.mark.parametrize(("build", "channels"), [(small_cnn, 1), (tiny_cnn, 3)])
def test_networks(build: Build, channels: int, by_kernels: Switch) -> None:
    torch.manual_seed(0)
    network, width = build((channels, 15, 14))
    fuse(network)
    network, images, above = network.to(DEVICE), rand(2, channels, 15, 14), rand(2, width, seed=1)
    by_kernels(True)
    found = network_answers(network, images, above)
    by_kernels(False)
    wanted = network_answers(copy.deepcopy(network).double(), images.double(), above)
    for one, other in zip(found, wanted, strict=True):
        assert relative_error(one, other) < ROUNDING


@both_networks
def test_parameter_names_are_those_of_plain_modules(build: Build) -> None:
    """Saved models contain them."""
    network, _ = build((3, 28, 28))
    fuse(network)
    blocks = sum(isinstance(layer, nn.Conv2d) for layer in network.modules())
    wanted = [f"{3 * block + part}.{kind}" for block in range(blocks) for part in (0, 2) for kind in ("weight", "bias")]
    assert list(network.state_dict()) == wanted


def test_styles_are_mixed_with_and_without_kernels(by_kernels: Switch) -> None:
    torch.manual_seed(0)
    network, images = tiny_cnn((3, 8, 8))[0].to(DEVICE), rand(3, 3, 8, 8)
    fuse(network)
    plain = network(images)
    mixstyle.insert(network, probability=1.0, alpha=0.5)
    results = []
    for on in (True, False):
        by_kernels(on)
        torch.manual_seed(1)
        results.append(network(images))
    assert relative_error(results[0], results[1].double()) < ROUNDING
    assert relative_error(results[0], plain.double()) > 0.01


@on_a_gpu
@both_networks
@pytest.mark.parametrize("channels", [1, 3])
def test_bfloat16_is_as_accurate_as_autocast(build: Build, channels: int) -> None:
    torch.manual_seed(0)
    network, width = build((channels, 28, 28))
    fuse(network)
    network, images, above = network.to(DEVICE), rand(32, channels, 28, 28), rand(32, width, seed=1)
    wanted = network_answers(copy.deepcopy(network).double(), images.double(), above)
    with deterministic(), torch.autocast("cuda", torch.bfloat16):
        ours, again = (network_answers(network, images, above) for _ in range(2))
        with gpu_kernels.disabled():
            theirs = network_answers(network, images, above)
    assert not torch.equal(ours[0], theirs[0])
    assert all(map(torch.equal, ours, again))
    assert [one.dtype for one in ours] == [one.dtype for one in theirs]

    def off(found: list[Tensor], part: slice) -> float:
        errors = [relative_error(one, other) for one, other in zip(found[part], wanted[part], strict=True)]
        return float(torch.tensor(errors).square().mean().sqrt())

    for part in (slice(1), slice(1, None)):  # features, gradients
        assert off(ours, part) <= 1.2 * off(theirs, part)


@on_a_gpu
def test_bfloat16_results_are_rounded_once() -> None:
    """Half a step of bfloat16 is one part in 2^8 of the power of two below."""
    maps, *others = given(4, 64, 28, 28)
    maps, above = maps.bfloat16(), rand(4, 64, 28, 28, seed=3).bfloat16()
    found = answers(norm, [maps, *others], above)
    wanted = answers(exact, [one.double() for one in (maps, *others)], above)
    assert [one.dtype for one in found] == [torch.bfloat16, torch.bfloat16, torch.float32, torch.float32]
    for one, other in zip(found[:2], wanted[:2], strict=True):
        assert ((one - other).abs() <= 2**-8 * other.abs() + 1e-5).all()
    for one, other in zip(found[2:], wanted[2:], strict=True):
        assert relative_error(one, other) < ROUNDING
