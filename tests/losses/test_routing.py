"""The router's two terms at the ends of their ranges."""

import math

import pytest
import torch

from messi.losses.routing import balance, sparsity


@pytest.mark.parametrize("experts", [2, 6])
def test_uniform_routing_has_the_entropy_log_m(experts: int) -> None:
    assert sparsity(torch.full((4, experts), 1 / experts)).item() == pytest.approx(math.log(experts), rel=1e-6)


def test_entropy_is_the_mean_over_the_examples() -> None:
    routing = torch.tensor([[0.5, 0.5, 0.0], [0.25, 0.25, 0.5]])
    assert sparsity(routing).item() == pytest.approx((1 + 1.5) / 2 * math.log(2), rel=1e-6)


def test_entropy_gradient_by_hand() -> None:
    routing = torch.tensor([[0.5, 0.25, 0.25]], requires_grad=True)
    (gradient,) = torch.autograd.grad(sparsity(routing), routing)
    assert gradient[0].tolist() == pytest.approx([-1 - math.log(p) for p in (0.5, 0.25, 0.25)], rel=1e-5)


def test_one_hot_routing_has_no_entropy_and_a_finite_gradient() -> None:
    routing = torch.eye(4, requires_grad=True)
    loss = sparsity(routing)
    (gradient,) = torch.autograd.grad(loss, routing)
    assert loss.item() == 0
    assert torch.isfinite(gradient).all()


def test_router_so_sure_that_its_softmax_underflows_gets_a_zero_gradient_not_nan() -> None:
    logits = torch.tensor([[0.0, 200.0, 0.0]], requires_grad=True)
    (gradient,) = torch.autograd.grad(sparsity(logits.softmax(-1)), logits)
    assert gradient.tolist() == [[0.0, 0.0, 0.0]]


def test_balance_by_hand() -> None:
    # The deviations from 1/3 are 1/6, -1/30 and -2/15.
    load = torch.tensor([0.5, 0.3, 0.2], requires_grad=True)
    loss = balance(load)
    (gradient,) = torch.autograd.grad(loss, load)
    assert loss.item() == pytest.approx(7 / 150, rel=1e-5)
    assert gradient.tolist() == pytest.approx([2 / 6, -2 / 30, -4 / 15], rel=1e-5)


def test_balance_is_zero_for_a_uniform_load_and_largest_for_a_single_expert() -> None:
    assert balance(torch.full((4,), 0.25)).item() == 0
    assert balance(torch.tensor([1.0, 0.0, 0.0, 0.0])).item() == pytest.approx(3 / 4, rel=1e-6)
