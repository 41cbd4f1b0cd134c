"""MESSI's three regularisers: entropy and balance of the routing, and the two forms of the diversity term."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from messi.algorithms.messi import Form, balance, diversity, sparsity


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


def test_a_router_whose_softmax_underflows_gets_a_zero_gradient() -> None:
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


def random_features(experts: int = 4, batch: int = 6, width: int = 5) -> Tensor:
    return torch.randn(experts, batch, width, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def literal(features: Tensor, form: Form) -> Tensor:
    """Return the term as the paper writes it, pair by pair."""
    features = features.double()
    batch = features.shape[1]
    total = features.new_zeros(())
    for first, second in itertools.permutations(features, 2):
        if form == "cosine":
            total = total + torch.cosine_similarity(first, second, dim=-1).mean().square()
        else:
            product = (first / first.norm()).T @ (second / second.norm()) / batch
            total = total + product.square().sum()
    return total


@pytest.mark.parametrize("form", ["cosine", "frobenius"])
def test_value_and_gradient_match_the_formula(form: Form) -> None:
    features = random_features().requires_grad_()
    value, expected = diversity(features, form=form), literal(features, form)
    assert value.item() == pytest.approx(expected.item(), rel=1e-5)
    (gradient,), (wanted,) = torch.autograd.grad(value, features), torch.autograd.grad(expected, features)
    assert (gradient - wanted).norm().item() < 1e-5 * wanted.norm().item()


def test_cosine_is_the_default() -> None:
    features = random_features()
    assert diversity(features).item() == diversity(features, form="cosine").item()


@pytest.mark.parametrize("experts", [2, 6])
def test_identical_experts_count_every_ordered_pair_once(experts: int) -> None:
    same = random_features(experts=1).expand(experts, -1, -1)
    assert diversity(same, form="cosine").item() == pytest.approx(experts * (experts - 1), rel=1e-5)
    assert diversity(same, form="cosine", reduction="mean").item() == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize("form", ["cosine", "frobenius"])
def test_the_mean_over_pairs_is_the_sum_divided_by_their_number(form: Form) -> None:
    features = random_features(experts=4)
    mean, total = diversity(features, form=form, reduction="mean"), diversity(features, form=form)
    assert mean.item() == pytest.approx(total.item() / 12, rel=1e-6)


def test_one_expert_has_no_pairs() -> None:
    assert diversity(random_features(experts=1), reduction="mean").item() == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("form", ["cosine", "frobenius"])
def test_orthogonal_experts_cost_nothing(form: Form) -> None:
    # Each expert has its own coordinate, which makes the cosines zero, and its own pattern of signs over the batch,
    # which makes the columns of H_m and H_n orthogonal.
    signs = torch.tensor([[1.0, 1.0, 1.0, 1.0], [1.0, -1.0, 1.0, -1.0], [1.0, 1.0, -1.0, -1.0]])
    features = torch.einsum("mb,mr->mbr", signs, torch.eye(3))
    assert diversity(features, form=form).item() == 0


@pytest.mark.parametrize("form", ["cosine", "frobenius"])
@pytest.mark.parametrize("scale", [1e-4, 1e4])
def test_scale_of_an_expert_does_not_matter(form: Form, scale: float) -> None:
    features = random_features()
    scales = torch.tensor([scale, 1.0, 1.0 / scale, 1.0], dtype=torch.float64)[:, None, None]
    assert diversity(features * scales, form=form).item() == pytest.approx(
        diversity(features, form=form).item(), rel=1e-5
    )


@pytest.mark.parametrize("form", ["cosine", "frobenius"])
def test_an_expert_with_zero_output_gives_a_finite_value_and_gradient(form: Form) -> None:
    features = random_features()
    features[1] = 0
    value = diversity(features.requires_grad_(), form=form)
    (gradient,) = torch.autograd.grad(value, features)
    assert torch.isfinite(value)
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("form", ["cosine", "frobenius"])
def test_gradcheck(form: Form) -> None:
    # The term is computed in float32: a step of 1e-2 keeps both its rounding (1e-7 / step) and the curvature's
    # share (step^2) below the tolerance.
    features = random_features(experts=3, batch=3, width=4).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: diversity(x, form=form), (features,), eps=1e-2, atol=1e-3, rtol=1e-2)


@pytest.mark.parametrize("form", ["cosine", "frobenius"])
def test_bfloat16_features_are_computed_in_float32(form: Form) -> None:
    features = random_features().bfloat16()
    value = diversity(features, form=form)
    assert value.dtype == torch.float32
    assert value.item() == diversity(features.float(), form=form).item()
