"""Entropic OT in float32 far from unit scale: finite everywhere, and still accurate."""

import pytest
import torch
from torch import Tensor

from messi.discrepancy import reference
from messi.discrepancy.sinkhorn import entropic_ot

from .helpers import converged_twin, dual_value, mean_of_costs, one_pair, padded, random_cloud, relative_error


def pair(*, scale: float = 1.0, offset: float = 0.0) -> tuple[Tensor, Tensor]:
    x = random_cloud(6, 16, seed=0, dtype=torch.float32) * scale + offset
    y = (random_cloud(8, 16, seed=1, dtype=torch.float32) + 0.5) * scale + offset
    return x.requires_grad_(), y.requires_grad_()


@pytest.mark.parametrize("relative_epsilon", [0.2, 10.0])
@pytest.mark.parametrize(("scale", "offset"), [(1e4, 0.0), (1e-4, 0.0), (1.0, 1e4), (1e4, 1e4), (1e-4, 1e-2)])
def test_scaled_and_shifted_clouds_equal_the_twin(scale: float, offset: float, relative_epsilon: float) -> None:
    # The twin gets the same float32 points, so that the rounding by the offset is not part of the error.
    x, y = pair(scale=scale, offset=offset)
    epsilon = relative_epsilon * mean_of_costs(x, y)
    value = one_pair(x, y, epsilon=epsilon, iterations=100)
    twin = converged_twin(x, y, epsilon=epsilon)
    assert value.item() == pytest.approx(twin.item(), rel=1e-5)
    for actual, expected in zip(torch.autograd.grad(value, (x, y)), torch.autograd.grad(twin, (x, y)), strict=True):
        assert relative_error(actual, expected) < 1e-4


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
@pytest.mark.parametrize("relative_epsilon", [1e-3, 1e-2, 1e-1, 1.0, 10.0])
def test_fifty_rounds_equal_fifty_float64_rounds_for_every_epsilon(relative_epsilon: float, scale: float) -> None:
    # Fifty rounds have not converged for the two smallest epsilons, so both sides do the same fifty, on the
    # clouds that entropic_ot iterates on: the centred ones.
    x, y = pair(scale=scale)
    epsilon = relative_epsilon * mean_of_costs(x, y)
    value = one_pair(x, y, epsilon=epsilon, iterations=50)
    assert value.item() == pytest.approx(dual_value(x, y, epsilon=epsilon, iterations=50), rel=1e-5)

    x_mean, y_mean = x.double().mean(0), y.double().mean(0)
    centred, _ = reference.entropic_ot(x - x_mean, y - y_mean, epsilon=epsilon, iterations=50)
    twin = centred + (x_mean - y_mean).square().sum()
    # The exponents of the plan are of size cost / epsilon, and float32 rounds them by 1e-7 of that.
    tolerance = max(1e-4, 1e-6 / relative_epsilon)
    for actual, expected in zip(torch.autograd.grad(value, (x, y)), torch.autograd.grad(twin, (x, y)), strict=True):
        assert relative_error(actual, expected) < tolerance


def test_mass_crosses_a_distance_whose_kernel_is_zero_in_float32() -> None:
    # Half the mass has to cross. exp(-cost / epsilon) = exp(-120) is zero in float32, so this fails unless the kernel
    # is computed again while the potentials grow.
    places = torch.tensor([[-1.0], [0.0], [1.0]])
    x, y = (places.repeat_interleave(torch.tensor(counts), 0).requires_grad_() for counts in ((1, 6, 1), (3, 2, 3)))
    value = one_pair(x, y, epsilon=1 / 120, iterations=300)
    assert value.item() == pytest.approx(converged_twin(x, y, epsilon=1 / 120).item(), rel=1e-5)
    (gradient,) = torch.autograd.grad(value, y)
    # Two of three points at each end come from the middle: 2 (y - x) / 8 for them, on average.
    torch.testing.assert_close(gradient[:3], torch.full((3, 1), 2 / 3 * -2 / 8), rtol=1e-4, atol=0)


@pytest.mark.parametrize("scale", [1e2, 1e3, 1e4, 1e6])
def test_the_gradient_stays_within_the_clouds_for_any_epsilon(scale: float) -> None:
    # An absolute epsilon far below the rounding of the costs: the best plan is undefined, but the columns of any plan
    # have their mass, so no point of y is pulled further than to the farthest point of x.
    x, y = pair(scale=scale)
    value = one_pair(x, y, epsilon=0.1, iterations=50)
    (gradient,) = torch.autograd.grad(value, y)
    farthest = reference.squared_distances(x.detach(), y.detach()).max().sqrt()
    assert torch.isfinite(value)
    assert float(gradient.norm(dim=1).max()) <= float(2 / len(y) * farthest) * (1 + 1e-5)


@pytest.mark.parametrize("epsilon", [0.0, 1e-30, 1e-3, 10.0])
def test_identical_points_have_zero_cost_and_zero_gradient(epsilon: float) -> None:
    x, x_mask = padded([torch.zeros(3, 4), torch.zeros(1, 4)], to=4)
    y, y_mask = padded([torch.zeros(2, 4), torch.zeros(4, 4)], to=4)
    values = entropic_ot(x.requires_grad_(), y.requires_grad_(), x_mask, y_mask, epsilon=epsilon, iterations=50)
    assert values.tolist() == [0.0, 0.0]
    for gradient in torch.autograd.grad(values.sum(), (x, y)):
        assert not gradient.any()


@pytest.mark.parametrize("offset", [0.1, 1e4])
def test_identical_points_far_from_the_origin_cost_no_more_than_a_rounding(offset: float) -> None:
    x, y = torch.full((3, 4), offset, requires_grad=True), torch.full((7, 4), offset)
    value = one_pair(x, y, epsilon=1e-3, iterations=50)
    (gradient,) = torch.autograd.grad(value, x)
    rounding = torch.finfo(torch.float32).eps * offset
    assert abs(value.item()) <= 4 * (4 * rounding) ** 2
    assert float(gradient.abs().max()) <= 8 * rounding


def test_pairs_of_very_different_scale_share_a_batch() -> None:
    # A value is epsilon times a sum of potentials, so it is rounded as a number of the size of epsilon is.
    clouds = [pair(scale=scale) for scale in (1e-3, 1.0, 1e3)]
    x, y = (torch.stack(side) for side in zip(*clouds, strict=True))
    epsilon = 0.2 * mean_of_costs(*clouds[2])
    values = one_pair(x, y, epsilon=epsilon, iterations=100)
    for value, (first, second) in zip(values, clouds, strict=True):
        twin = converged_twin(first, second, epsilon=epsilon)
        assert value.item() == pytest.approx(twin.item(), rel=1e-5, abs=1e-6 * epsilon)
