"""The two terms on the directions of DynMoE's experts, against loops in float64 and by hand."""

import math

import pytest
import torch
from torch import Tensor

from messi.algorithms.dynmoe import direction_diversity, direction_simplicity

ALL = torch.ones(3, dtype=torch.bool)


def slow(directions: Tensor, active: list[bool]) -> tuple[float, float]:
    rows = [row for row, used in zip(directions.double().tolist(), active, strict=True) if used]
    lengths = [math.sqrt(sum(v * v for v in row)) for row in rows]
    square = 0.0
    for i, one in enumerate(rows):
        for j, other in enumerate(rows):
            cosine = sum(a * b for a, b in zip(one, other, strict=True)) / lengths[i] / lengths[j]
            square += (cosine - (i == j)) ** 2
    return math.sqrt(square), sum(lengths) / len(lengths)


@pytest.mark.parametrize("active", [[True, True, True, True], [True, False, True, True], [False, True, False, False]])
def test_both_match_loops_over_the_experts_in_use(active: list[bool]) -> None:
    torch.manual_seed(0)
    directions, mask = torch.randn(4, 7), torch.tensor(active)
    diversity, simplicity = slow(directions, active)
    # The diagonal is 0 in float64 and a few times 1e-7 in float32.
    assert direction_diversity(directions, mask).item() == pytest.approx(diversity, rel=1e-5, abs=1e-6)
    assert direction_simplicity(directions, mask).item() == pytest.approx(simplicity, rel=1e-5)


def test_by_hand() -> None:
    directions = torch.tensor([[2.0, 0.0], [3.0, 0.0], [0.0, 1.0]])
    # Of six ordered pairs two have the cosine 1.
    assert direction_diversity(directions, ALL).item() == pytest.approx(math.sqrt(2))
    assert direction_simplicity(directions, ALL).item() == pytest.approx(2)
    assert direction_diversity(3 * directions, ALL).item() == pytest.approx(math.sqrt(2))


def test_unused_slots_have_no_effect_and_no_gradient() -> None:
    torch.manual_seed(0)
    directions, mask = torch.randn(4, 7, requires_grad=True), torch.tensor([True, True, False, True])
    (direction_diversity(directions, mask) + direction_simplicity(directions, mask)).backward()
    assert directions.grad is not None
    assert directions.grad[2].tolist() == [0.0] * 7
    assert (directions.grad[mask].abs().sum(-1) > 0).all()


@pytest.mark.parametrize("directions", [torch.eye(3), torch.zeros(3, 3), torch.ones(3, 3)])
@pytest.mark.parametrize("mask", [ALL, ~ALL, torch.tensor([True, False, False])])
def test_gradients_are_finite_where_a_norm_is_zero(directions: Tensor, mask: Tensor) -> None:
    leaf = directions.clone().requires_grad_()
    value = direction_diversity(leaf, mask) + direction_simplicity(leaf, mask)
    value.backward()
    assert leaf.grad is not None
    assert value.isfinite()
    assert leaf.grad.isfinite().all()


def test_orthogonal_directions_cost_nothing() -> None:
    assert direction_diversity(torch.eye(3), ALL).item() == 0
