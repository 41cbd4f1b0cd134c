"""Entropic OT against its float64 twin, POT, analytic truths and laws."""

import itertools
import math

import ot
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from messi.discrepancy import reference
from messi.discrepancy.sinkhorn import entropic_ot, sinkhorn_divergence

from .helpers import converged_twin, everywhere, mean_of_costs, one_pair, padded, random_cloud, relative_error

VALUE_RTOL = 1e-5
GRADIENT_RTOL = 1e-4
"""The accuracy promised in float32, about 100 and 1,000 roundings."""

ROUNDS = 300
"""Enough for every epsilon from a fifth of the mean cost on; ``converged_twin`` asserts it."""

SIZES = ((1, 1), (1, 6), (5, 1), (2, 7), (4, 4), (8, 3))

few_examples = settings(max_examples=15, deadline=None, derandomize=True)
sizes = st.integers(1, 7)
seeds = st.integers(0, 1000)


def ragged_pairs(dtype: torch.dtype) -> list[tuple[Tensor, Tensor]]:
    """Return clouds of all ``SIZES`` whose means differ by about as much as their points do."""
    return [
        (random_cloud(n, seed=2 * i, dtype=dtype), random_cloud(p, seed=2 * i + 1, dtype=dtype) + 0.5)
        for i, (n, p) in enumerate(SIZES)
    ]


def solve_padded(
    pairs: list[tuple[Tensor, Tensor]], *, epsilon: float, iterations: int = ROUNDS, to: int = 8, garbage: float = 0.0
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the values of a padded batch, and the gradients of their sum."""
    x, x_mask = padded([x for x, _ in pairs], to=to, garbage=garbage)
    y, y_mask = padded([y for _, y in pairs], to=to, garbage=garbage)
    values = entropic_ot(x.requires_grad_(), y.requires_grad_(), x_mask, y_mask, epsilon=epsilon, iterations=iterations)
    x_grad, y_grad = torch.autograd.grad(values.sum(), (x, y))
    return values.detach(), x_grad, y_grad


class TestAgainstTwinAndPot:
    @pytest.mark.parametrize("epsilon", [2.0, 10.0, 100.0])
    def test_padded_float32_batch_equals_the_float64_twin(self, epsilon: float) -> None:
        pairs = ragged_pairs(torch.float32)
        values, x_grads, y_grads = solve_padded(pairs, epsilon=epsilon)
        for (x, y), value, x_grad, y_grad in zip(pairs, values, x_grads, y_grads, strict=True):
            twin = converged_twin(x.requires_grad_(), y.requires_grad_(), epsilon=epsilon)
            expected_x, expected_y = torch.autograd.grad(twin, (x, y))
            assert value.item() == pytest.approx(twin.item(), rel=VALUE_RTOL)
            assert relative_error(x_grad[: len(x)], expected_x) < GRADIENT_RTOL
            assert relative_error(y_grad[: len(y)], expected_y) < GRADIENT_RTOL

    @pytest.mark.parametrize("epsilon", [2.0, 10.0, 100.0])
    def test_float64_equals_the_twin_to_float64_accuracy(self, epsilon: float) -> None:
        # 1e-12: hundreds of roundings in float64, and far below any constant rounded to float32.
        pairs = ragged_pairs(torch.float64)
        values, x_grads, _ = solve_padded(pairs, epsilon=epsilon)
        for (x, y), value, x_grad in zip(pairs, values, x_grads, strict=True):
            twin = converged_twin(x.requires_grad_(), y, epsilon=epsilon)
            (expected,) = torch.autograd.grad(twin, x)
            assert value.item() == pytest.approx(twin.item(), rel=1e-12)
            # The gradient converges as the square root of the value, and the twin stops at 1e-9.
            assert relative_error(x_grad[: len(x)], expected) < 1e-8

    @pytest.mark.parametrize("epsilon", [2.0, 10.0, 100.0])
    def test_padded_float32_batch_equals_pot(self, epsilon: float) -> None:
        pairs = ragged_pairs(torch.float32)
        values, x_grads, y_grads = solve_padded(pairs, epsilon=epsilon)
        for (x, y), value, x_grad, y_grad in zip(pairs, values, x_grads, y_grads, strict=True):
            first, second = x.double(), y.double()
            cost = torch.as_tensor(ot.dist(first.numpy(), second.numpy(), metric="sqeuclidean"))
            plan = torch.as_tensor(
                ot.bregman.sinkhorn_log([], [], cost.numpy(), epsilon, numItermax=10_000, stopThr=1e-12)
            )
            divergence = (plan * torch.log(plan * len(x) * len(y))).sum()
            assert value.item() == pytest.approx(float((plan * cost).sum() + epsilon * divergence), rel=VALUE_RTOL)
            x_pull = 2 * (plan.sum(1)[:, None] * first - plan @ second)
            y_pull = 2 * (plan.sum(0)[:, None] * second - plan.T @ first)
            assert relative_error(x_grad[: len(x)], x_pull) < GRADIENT_RTOL
            assert relative_error(y_grad[: len(y)], y_pull) < GRADIENT_RTOL

    def test_gradcheck_of_a_padded_batch(self) -> None:
        pairs = [(random_cloud(n, 2, seed=n), random_cloud(p, 2, seed=10 + p)) for n, p in ((1, 3), (3, 2), (2, 2))]
        x, x_mask = padded([x for x, _ in pairs], to=3, garbage=7.0)
        y, y_mask = padded([y for _, y in pairs], to=3, garbage=-9.0)

        def values(x: Tensor, y: Tensor) -> Tensor:
            return entropic_ot(x, y, x_mask, y_mask, epsilon=1.0, iterations=ROUNDS)

        assert torch.autograd.gradcheck(values, (x.requires_grad_(), y.requires_grad_()))

    def test_the_gradient_of_each_value_is_weighted_by_the_incoming_gradient(self) -> None:
        pairs = ragged_pairs(torch.float64)
        x, x_mask = padded([x for x, _ in pairs], to=8)
        y, y_mask = padded([y for _, y in pairs], to=8)
        weights = torch.arange(1.0, len(pairs) + 1, dtype=torch.float64)
        values = entropic_ot(x.requires_grad_(), y, x_mask, y_mask, epsilon=5.0, iterations=ROUNDS)
        (weighted,) = torch.autograd.grad((weights * values).sum(), x, retain_graph=True)
        (plain,) = torch.autograd.grad(values.sum(), x)
        torch.testing.assert_close(weighted, weights[:, None, None] * plain, rtol=1e-12, atol=1e-14)


class TestAnalyticValues:
    def test_two_diracs_are_their_squared_distance_apart(self) -> None:
        x, y = torch.tensor([[1.0, 2.0]], requires_grad=True), torch.tensor([[4.0, -2.0]], requires_grad=True)
        value = one_pair(x, y, epsilon=0.1, iterations=1)
        assert value.item() == 25.0
        x_grad, y_grad = torch.autograd.grad(value, (x, y))
        assert x_grad.tolist() == [[-6.0, 8.0]]
        assert y_grad.tolist() == [[6.0, -8.0]]

    @pytest.mark.parametrize("epsilon", [1e-3, 1.0, 1e3])
    def test_one_point_against_many_is_the_mean_cost_after_one_round(self, epsilon: float) -> None:
        point, cloud = random_cloud(1, seed=0), random_cloud(6, seed=1)
        expected = pytest.approx(mean_of_costs(point, cloud), rel=1e-12)
        assert one_pair(point, cloud, epsilon=epsilon, iterations=1).item() == expected
        assert one_pair(cloud, point, epsilon=epsilon, iterations=1).item() == expected

    @pytest.mark.parametrize("iterations", [1, 3, 50])
    @pytest.mark.parametrize("epsilon", [1e-2, 1e-1, 1.0, 10.0, 100.0, 1e3])
    def test_translation_adds_the_squared_distance_for_any_number_of_rounds(
        self, epsilon: float, iterations: int
    ) -> None:
        cloud, step = random_cloud(6, seed=3), random_cloud(1, seed=4) * 3
        still = one_pair(cloud, cloud, epsilon=epsilon, iterations=iterations)
        moved = one_pair(cloud, cloud + step, epsilon=epsilon, iterations=iterations)
        assert moved.item() == pytest.approx((still + step.square().sum()).item(), rel=1e-12)

    def test_large_epsilon_gives_the_mean_cost(self) -> None:
        # W_eps = mean cost - var(cost) / (2 eps) + ...: 1e6 leaves a relative gap of about 1e-6.
        x, y = random_cloud(5, seed=5), random_cloud(7, seed=6)
        value = one_pair(x, y, epsilon=1e6, iterations=10).item()
        assert value == pytest.approx(mean_of_costs(x, y), rel=1e-5)
        assert value <= mean_of_costs(x, y)

    def test_small_epsilon_gives_the_assignment_cost(self) -> None:
        # A permutation's plan has KL = log n, so the value exceeds the assignment's by at most eps log n.
        x, y = random_cloud(5, seed=7), random_cloud(5, seed=8)
        cost = reference.squared_distances(x, y)
        orders = itertools.permutations(range(5))
        assignment = min(float(cost[range(5), list(order)].mean()) for order in orders)
        epsilon = 1e-3 * assignment
        value = one_pair(x, y, epsilon=epsilon, iterations=3000).item()
        assert assignment * (1 - 1e-9) <= value <= assignment + epsilon * math.log(5)

    def test_value_grows_with_every_round_up_to_the_twin(self) -> None:
        x, y = random_cloud(5, seed=9), random_cloud(7, seed=10)
        epsilon = 0.05 * mean_of_costs(x, y)
        values = [one_pair(x, y, epsilon=epsilon, iterations=rounds).item() for rounds in (1, 2, 4, 8, 1000)]
        assert values == sorted(values)
        assert values[0] < 0.999 * values[-1]
        assert values[-1] == pytest.approx(converged_twin(x, y, epsilon=epsilon, iterations=1000).item(), rel=1e-9)


class TestLaws:
    @few_examples
    @given(n=sizes, p=sizes, seed=seeds)
    def test_symmetric(self, n: int, p: int, seed: int) -> None:
        x, y = random_cloud(n, seed=seed), random_cloud(p, seed=seed + 1)
        forth = one_pair(x, y, epsilon=5.0, iterations=ROUNDS)
        back = one_pair(y, x, epsilon=5.0, iterations=ROUNDS)
        torch.testing.assert_close(forth, back, rtol=1e-9, atol=0)

    @few_examples
    @given(n=sizes, p=sizes, seed=seeds)
    def test_order_of_the_points_does_not_matter(self, n: int, p: int, seed: int) -> None:
        x, y = random_cloud(n, seed=seed).requires_grad_(), random_cloud(p, seed=seed + 1)
        generator = torch.Generator().manual_seed(seed)
        x_order, y_order = torch.randperm(n, generator=generator), torch.randperm(p, generator=generator)
        value = one_pair(x, y, epsilon=1.0, iterations=10)
        shuffled = one_pair(x[x_order], y[y_order], epsilon=1.0, iterations=10)
        torch.testing.assert_close(value, shuffled, rtol=1e-12, atol=0)
        torch.testing.assert_close(
            torch.autograd.grad(value, x), torch.autograd.grad(shuffled, x), rtol=1e-9, atol=1e-12
        )

    @few_examples
    @given(n=sizes, p=sizes, extra=st.integers(1, 5), garbage=st.sampled_from([0.0, 3.0, -1e30, 1e30]), seed=seeds)
    def test_padding_changes_nothing_and_gets_no_gradient(
        self, n: int, p: int, extra: int, garbage: float, seed: int
    ) -> None:
        pairs = [(random_cloud(n, seed=seed), random_cloud(p, seed=seed + 1))]
        to = max(n, p)
        value, x_grad, y_grad = solve_padded(pairs, epsilon=1.0, iterations=10, to=to)
        wide, wide_x, wide_y = solve_padded(pairs, epsilon=1.0, iterations=10, to=to + extra, garbage=garbage)
        torch.testing.assert_close(wide, value, rtol=1e-12, atol=0)
        torch.testing.assert_close(wide_x[:, :n], x_grad[:, :n], rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(wide_y[:, :p], y_grad[:, :p], rtol=1e-9, atol=1e-12)
        assert not wide_x[:, n:].any()
        assert not wide_y[:, p:].any()

    @pytest.mark.parametrize("garbage", [0.0, 1e30])
    def test_padding_changes_nothing_in_float32(self, garbage: float) -> None:
        pairs = ragged_pairs(torch.float32)
        values, x_grad, y_grad = solve_padded(pairs, epsilon=2.0, iterations=20)
        wide, wide_x, wide_y = solve_padded(pairs, epsilon=2.0, iterations=20, to=13, garbage=garbage)
        torch.testing.assert_close(wide, values, rtol=1e-6, atol=0)
        assert relative_error(wide_x[:, :8], x_grad) < 1e-6
        assert relative_error(wide_y[:, :8], y_grad) < 1e-6

    def test_batch_with_two_leading_dimensions_equals_a_loop(self) -> None:
        shape = (2, 3)
        x = torch.stack([random_cloud(4, seed=i) for i in range(6)]).view(*shape, 4, 5)
        y = torch.stack([random_cloud(5, seed=6 + i) for i in range(6)]).view(*shape, 5, 5)
        x_mask, y_mask = everywhere(x), everywhere(y)
        x_mask[0, 1, 2:] = False
        y_mask[1, 2, 1:] = False
        together = entropic_ot(x, y, x_mask, y_mask, epsilon=1.0, iterations=10)
        assert together.shape == shape
        for i, j in itertools.product(*map(range, shape)):
            alone = one_pair(x[i, j][x_mask[i, j]], y[i, j][y_mask[i, j]], epsilon=1.0, iterations=10)
            torch.testing.assert_close(together[i, j], alone, rtol=1e-12, atol=0)

    @pytest.mark.parametrize("offset", [0.0, 1e4])
    def test_relative_epsilon_is_in_units_of_the_mean_cost_of_all_pairs_of_points(self, offset: float) -> None:
        firsts = [random_cloud(n, seed=n, dtype=torch.float32) + offset for n in (1, 3, 5)]
        seconds = [random_cloud(n, seed=9 + n, dtype=torch.float32) + 2 + offset for n in (4, 2, 5)]
        (x, x_mask), (y, y_mask) = padded(firsts, to=6, garbage=7.0), padded(seconds, to=5, garbage=-7.0)
        costs = [reference.squared_distances(a.double(), b.double()) for a, b in zip(firsts, seconds, strict=True)]
        unit = torch.cat([cost.flatten() for cost in costs]).mean().item()
        relative = entropic_ot(x, y, x_mask, y_mask, epsilon=0.2, iterations=50, relative=True)
        absolute = entropic_ot(x, y, x_mask, y_mask, epsilon=0.2 * unit, iterations=50)
        torch.testing.assert_close(relative, absolute, rtol=1e-5, atol=0)


class TestDivergence:
    EPSILON = 3.0
    FIRST, SECOND = torch.tensor([0, 0, 1, 2, 3]), torch.tensor([1, 2, 2, 3, 0])

    @staticmethod
    def clouds(dtype: torch.dtype = torch.float64) -> list[Tensor]:
        return [random_cloud(n, seed=n, dtype=dtype) + 0.1 * n for n in (1, 3, 6, 4)]

    def test_value_and_gradient_equal_the_twin_and_pot(self) -> None:
        clouds = [cloud.requires_grad_() for cloud in self.clouds()]
        points, mask = padded(clouds, to=7)
        values = sinkhorn_divergence(points, mask, self.FIRST, self.SECOND, epsilon=self.EPSILON, iterations=ROUNDS)
        for value, i, j in zip(values, self.FIRST.tolist(), self.SECOND.tolist(), strict=True):
            twin = reference.sinkhorn_divergence(clouds[i], clouds[j], epsilon=self.EPSILON, iterations=ROUNDS)
            gradients, expected = (
                torch.autograd.grad(v, (clouds[i], clouds[j]), retain_graph=True) for v in (value, twin)
            )
            assert value.item() == pytest.approx(twin.item(), rel=1e-7)
            assert all(relative_error(a, b) < 1e-6 for a, b in zip(gradients, expected, strict=True))
            assert value.item() == pytest.approx(self.by_pot(clouds[i], clouds[j]), rel=1e-5)

    def by_pot(self, x: Tensor, y: Tensor) -> float:
        def cost(a: Tensor, b: Tensor) -> float:
            matrix = reference.squared_distances(a, b).detach().numpy()
            return float(ot.solve(matrix, reg=self.EPSILON, reg_type="KL", tol=1e-12, max_iter=10_000).value)

        return cost(x, y) - cost(x, x) / 2 - cost(y, y) / 2

    def test_gradcheck(self) -> None:
        points, mask = padded([random_cloud(n, 2, seed=n) for n in (3, 2, 4)], to=4)
        pairs = torch.tensor([0, 0, 1]), torch.tensor([1, 2, 2])
        assert torch.autograd.gradcheck(
            lambda x: sinkhorn_divergence(x, mask, *pairs, epsilon=2.0, iterations=ROUNDS),
            (points.requires_grad_(),),
        )

    @few_examples
    @given(n=sizes, p=sizes, seed=seeds, epsilon=st.sampled_from([2.0, 10.0, 100.0]))
    def test_not_negative_and_zero_for_equal_clouds(self, n: int, p: int, seed: int, epsilon: float) -> None:
        x, y = random_cloud(n, seed=seed), random_cloud(p, seed=seed + 1)
        points, mask = padded([x, y, x.flip(0)], to=8)
        pairs = torch.tensor([0, 0]), torch.tensor([1, 2])
        other, same = sinkhorn_divergence(points, mask, *pairs, epsilon=epsilon, iterations=ROUNDS).tolist()
        assert other > 0
        assert abs(same) < 1e-12
