"""The two readings of the term that keeps experts apart."""

import itertools

import pytest
import torch
from torch import Tensor

from messi.losses.diversity import Form, diversity


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
def test_value_and_gradient_are_those_of_the_literal_formula(form: Form) -> None:
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


@pytest.mark.parametrize("form", ["cosine", "frobenius"])
def test_orthogonal_experts_are_free(form: Form) -> None:
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
def test_silent_expert_gives_a_finite_value_and_gradient(form: Form) -> None:
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
