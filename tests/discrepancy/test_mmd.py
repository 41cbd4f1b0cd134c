"""Squared MMD against its float64 twin, a hand-computed pair and laws."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from messi.discrepancy import reference
from messi.discrepancy.mmd import BANDWIDTHS, mmd_squared

from .helpers import everywhere, padded, random_cloud, relative_error

SIZES = ((1, 1), (1, 6), (2, 7), (4, 4), (8, 3))


def one_pair(x: Tensor, y: Tensor) -> Tensor:
    return mmd_squared(x, y, everywhere(x), everywhere(y))


@pytest.mark.parametrize("bandwidths", [BANDWIDTHS, (0.5, 3.0)])
@pytest.mark.parametrize("garbage", [0.0, 1e30])
def test_padded_float32_batch_equals_the_float64_twin(garbage: float, bandwidths: tuple[float, ...]) -> None:
    pairs = [
        (random_cloud(n, seed=n, dtype=torch.float32), random_cloud(p, seed=9 + p, dtype=torch.float32) + 1)
        for n, p in SIZES
    ]
    x, x_mask = padded([x for x, _ in pairs], to=9, garbage=garbage)
    y, y_mask = padded([y for _, y in pairs], to=8, garbage=garbage)
    values = mmd_squared(x.requires_grad_(), y.requires_grad_(), x_mask, y_mask, bandwidths=bandwidths)
    x_grads, y_grads = torch.autograd.grad(values.sum(), (x, y))
    for (first, second), value, x_grad, y_grad in zip(pairs, values, x_grads, y_grads, strict=True):
        twin = reference.mmd_squared(first.requires_grad_(), second.requires_grad_(), bandwidths=bandwidths)
        expected_x, expected_y = torch.autograd.grad(twin, (first, second))
        # The terms that cancel are at most one per bandwidth, each rounded by some 1e-7.
        assert value.item() == pytest.approx(twin.item(), rel=1e-5, abs=1e-6)
        assert relative_error(x_grad[: len(first)], expected_x) < 1e-4
        assert relative_error(y_grad[: len(second)], expected_y) < 1e-4
        assert not x_grad[len(first) :].any()
        assert not y_grad[len(second) :].any()


def test_two_diracs_by_hand() -> None:
    # |x - y|^2 = 8: k(x, x) = k(y, y) = 5, one for each of the bandwidths 1, 2, 4, 8, 16.
    x, y = torch.tensor([[0.0, 0.0]]), torch.tensor([[2.0, 2.0]])
    kernel = math.exp(-4) + math.exp(-1) + math.exp(-1 / 4) + math.exp(-1 / 16) + math.exp(-1 / 64)
    assert one_pair(x, y).item() == pytest.approx(10 - 2 * kernel, rel=1e-6)


def test_identical_clouds_have_zero_distance_and_zero_gradient() -> None:
    cloud = random_cloud(5, seed=0).requires_grad_()
    value = one_pair(cloud, cloud.detach())
    (gradient,) = torch.autograd.grad(value, cloud)
    # 5 - 5 in float64.
    assert abs(value.item()) < 1e-14
    assert float(gradient.abs().max()) < 1e-14


@settings(max_examples=15, deadline=None, derandomize=True)
@given(n=st.integers(1, 6), p=st.integers(1, 6), seed=st.integers(0, 1000))
def test_symmetric_positive_and_independent_of_the_order(n: int, p: int, seed: int) -> None:
    x, y = random_cloud(n, seed=seed), random_cloud(p, seed=seed + 1)
    value = one_pair(x, y)
    assert value.item() > 0
    torch.testing.assert_close(one_pair(y, x), value, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(one_pair(x.flip(0), y.flip(0)), value, rtol=1e-12, atol=1e-14)


def test_gradcheck_of_a_padded_batch() -> None:
    x, x_mask = padded([random_cloud(3, 2, seed=0), random_cloud(1, 2, seed=1)], to=3, garbage=7.0)
    y, y_mask = padded([random_cloud(2, 2, seed=2), random_cloud(2, 2, seed=3)], to=3, garbage=-9.0)

    def values(x: Tensor, y: Tensor) -> Tensor:
        return mmd_squared(x, y, x_mask, y_mask)

    assert torch.autograd.gradcheck(values, (x.requires_grad_(), y.requires_grad_()))


@pytest.mark.parametrize(("scale", "offset"), [(1e4, 0.0), (1e-4, 0.0), (1.0, 1e4), (0.0, 1.0)])
def test_finite_and_accurate_at_every_scale(scale: float, offset: float) -> None:
    x = (random_cloud(4, seed=0, dtype=torch.float32) * scale + offset).requires_grad_()
    y = random_cloud(6, seed=1, dtype=torch.float32) * scale + offset
    value = one_pair(x, y)
    twin = reference.mmd_squared(x, y, bandwidths=BANDWIDTHS)
    # Three means of kernels of size up to 5 are subtracted, so the rounding is one of numbers of size 10.
    assert value.item() == pytest.approx(twin.item(), rel=1e-5, abs=1e-5)
    (gradient,), (expected,) = torch.autograd.grad(value, x), torch.autograd.grad(twin, x)
    torch.testing.assert_close(gradient, expected.to(gradient), rtol=1e-4, atol=1e-6)
