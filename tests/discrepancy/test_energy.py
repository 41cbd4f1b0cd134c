"""Energy distance against its definition in float64, pairs computed by hand and laws."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from messi.discrepancy.energy import energy_distances

from .helpers import random_cloud


def mean_distance(x: Tensor, y: Tensor) -> float:
    """Return E|x - y|, pair by pair."""
    return sum(float((a - b).norm()) for a in x.double() for b in y.double()) / (len(x) * len(y))


def definition(x: Tensor, y: Tensor) -> float:
    return 2 * mean_distance(x, y) - mean_distance(x, x) - mean_distance(y, y)


def two_groups(x: Tensor, y: Tensor) -> Tensor:
    """Return the distance of two clouds."""
    groups = torch.tensor([0] * len(x) + [1] * len(y))
    return energy_distances(torch.cat([x, y]), groups, 2)[0, 1]


def test_two_diracs_are_twice_their_distance_apart() -> None:
    assert two_groups(torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 4.0]])).item() == 10


def test_a_point_between_two_by_hand() -> None:
    # 2 E|x - y| = 2, E|x - x'| = (0 + 2 + 2 + 0) / 4 = 1, E|y - y'| = 0.
    assert two_groups(torch.tensor([[0.0], [2.0]]), torch.tensor([[1.0]])).item() == 1


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_float32_points_in_any_order_equal_the_definition(offset: float) -> None:
    points = random_cloud(11, seed=0, dtype=torch.float32) + offset
    groups = torch.tensor([2, 0, 1, 1, 0, 2, 2, 2, 0, 1, 2])
    distances = energy_distances(points, groups, 3)
    for i in range(3):
        for j in range(3):
            expected = definition(points[groups == i], points[groups == j])
            assert distances[i, j].item() == pytest.approx(expected, rel=1e-10, abs=1e-12)


def test_only_pairs_with_an_empty_group_give_nan() -> None:
    distances = energy_distances(random_cloud(4, seed=0), torch.tensor([0, 0, 2, 2]), 3)
    assert distances.isnan().tolist() == [[False, True, False], [True, True, True], [False, True, False]]


def test_leading_dimensions_are_measured_one_by_one() -> None:
    clouds = torch.stack([random_cloud(6, seed=0), random_cloud(6, seed=1)])
    groups = torch.tensor([0, 1, 0, 1, 1, 0])
    together = energy_distances(clouds, groups, 2)
    apart = torch.stack([energy_distances(cloud, groups, 2) for cloud in clouds])
    torch.testing.assert_close(together, apart, rtol=1e-14, atol=1e-14)  # a batched product adds in another order


@settings(max_examples=15, deadline=None, derandomize=True)
@given(n=st.integers(1, 6), p=st.integers(1, 6), seed=st.integers(0, 1000), scale=st.floats(0.1, 10))
def test_symmetric_positive_of_degree_one_and_invariant_to_shifts(n: int, p: int, seed: int, scale: float) -> None:
    x, y = random_cloud(n, seed=seed), random_cloud(p, seed=seed + 1)
    value = two_groups(x, y)
    assert value.item() > 0
    torch.testing.assert_close(two_groups(y, x), value, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(two_groups(scale * x + 3, scale * y + 3), scale * value, rtol=1e-10, atol=1e-12)


def test_the_same_points_are_zero_apart() -> None:
    cloud = random_cloud(5, seed=0)
    # Means of 25 distances of size 3, summed in another order.
    assert abs(two_groups(cloud, cloud.flip(0)).item()) < 1e-14


def test_gradcheck() -> None:
    groups = torch.tensor([0, 1, 1, 0, 1])
    points = random_cloud(5, 2, seed=0).requires_grad_()
    assert torch.autograd.gradcheck(lambda points: energy_distances(points, groups, 2), (points,))
