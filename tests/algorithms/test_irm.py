"""The penalty of IRM against two derivatives by autograd, a hand-computed case, and edge cases."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from messi.algorithms.irm import invariant_risk, scale_gradients

DOMAINS = torch.tensor([0, 3, 1, 0, 1, 0, 1, 1, 0])
"""Domain 2 is absent, domain 3 has one example."""
LABELS = torch.tensor([0, 1, 2, 2, 1, 0, 0, 2, 1])


def random_logits() -> Tensor:
    return 2 * torch.randn(len(DOMAINS), 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def risk_gradient(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the derivative of the mean cross-entropy with respect to a scale of 1, with a graph."""
    scale = torch.ones((), dtype=logits.dtype, requires_grad=True)
    risk = functional.cross_entropy(logits * scale, labels)
    return torch.autograd.grad(risk, scale, create_graph=True)[0]


def literal(logits: Tensor, labels: Tensor, domains: Tensor) -> Tensor:
    products = []
    for domain in domains.unique():
        own, its_labels = logits[domains == domain], labels[domains == domain]
        if len(own) == 1:
            products.append(own.sum() * 0)
        else:
            halves = [risk_gradient(own[start::2], its_labels[start::2]) for start in (0, 1)]
            products.append(halves[0] * halves[1])
    return torch.stack(products).mean()


def test_closed_form_is_the_derivative_by_autograd() -> None:
    logits = random_logits()
    expected = [risk_gradient(row[None], label[None]).item() for row, label in zip(logits, LABELS, strict=True)]
    assert scale_gradients(logits, LABELS).tolist() == pytest.approx(expected, rel=1e-5)


def test_value_and_gradient_match_a_double_backward() -> None:
    logits = random_logits().requires_grad_()
    value, expected = invariant_risk(logits, LABELS, DOMAINS, 5), literal(logits, LABELS, DOMAINS)
    assert value.item() == pytest.approx(expected.item(), rel=1e-5)
    (gradient,), (wanted,) = torch.autograd.grad(value, logits), torch.autograd.grad(expected, logits)
    assert (gradient - wanted).norm() <= 1e-5 * wanted.norm()


def test_two_examples_by_hand() -> None:
    # Logits (a, 0) with a = log 3 have the softmax (3/4, 1/4): 3/4 a - a for the label 0, 3/4 a for the label 1.
    logits, domains = torch.tensor([[math.log(3), 0.0]] * 2), torch.zeros(2, dtype=torch.long)
    value = invariant_risk(logits, torch.tensor([0, 1]), domains, 1)
    assert value.item() == pytest.approx(-3 / 16 * math.log(3) ** 2, rel=1e-6)


def test_halves_are_the_even_and_the_odd_ranks_within_a_domain() -> None:
    logits = random_logits()
    order = DOMAINS.argsort(stable=True)
    torch.testing.assert_close(
        invariant_risk(logits[order], LABELS[order], DOMAINS[order], 4), invariant_risk(logits, LABELS, DOMAINS, 4)
    )


def test_single_example_costs_nothing_and_has_a_finite_gradient() -> None:
    logits = torch.tensor([[2.0, -1.0]], requires_grad=True)
    value = invariant_risk(logits, torch.tensor([1]), torch.tensor([0]), 1)
    (gradient,) = torch.autograd.grad(value, logits)
    assert value.item() == 0
    assert not gradient.any()


def test_logits_that_saturate_the_softmax_have_a_finite_gradient() -> None:
    logits = torch.tensor([[1e4, -1e4], [-1e4, 1e4]], requires_grad=True)
    value = invariant_risk(logits, torch.tensor([0, 0]), torch.tensor([0, 0]), 1)
    (gradient,) = torch.autograd.grad(value, logits)
    assert value.isfinite()
    assert gradient.isfinite().all()


def test_bfloat16_logits_are_computed_in_float32() -> None:
    logits = random_logits().bfloat16()
    value = invariant_risk(logits, LABELS, DOMAINS, 4)
    assert value.dtype == torch.float32
    assert value.item() == invariant_risk(logits.float(), LABELS, DOMAINS, 4).item()
