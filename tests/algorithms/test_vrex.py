"""The penalty of V-REx."""

import pytest
import torch

from messi.algorithms.vrex import risk_variance


def test_mean_squared_deviation_by_hand_without_the_absent_domain() -> None:
    # Mean 3: (4 + 0 + 4) / 3.
    risks, present = torch.tensor([1.0, 9.0, 3.0, 5.0]), torch.tensor([True, False, True, True])
    assert risk_variance(risks, present).item() == pytest.approx(8 / 3, rel=1e-6)


def test_gradient_by_hand() -> None:
    # Two thirds of the deviations from the mean.
    risks = torch.tensor([1.0, 3.0, 5.0, 7.0], requires_grad=True)
    (gradient,) = torch.autograd.grad(risk_variance(risks, torch.tensor([True, True, True, False])), risks)
    assert gradient.tolist() == pytest.approx([-4 / 3, 0, 4 / 3, 0], abs=1e-6)


@pytest.mark.parametrize("risks", [[2.0], [0.3, 0.3, 0.3]])
def test_one_domain_or_equal_risks_cost_nothing_and_have_a_finite_gradient(risks: list[float]) -> None:
    leaf = torch.tensor(risks, requires_grad=True)
    value = risk_variance(leaf, torch.ones(len(risks), dtype=torch.bool))
    (gradient,) = torch.autograd.grad(value, leaf)
    # Three times 0.3 is rounded once before it is divided by 3.
    assert value.item() < 1e-14
    assert float(gradient.abs().max()) < 1e-7


def test_it_is_the_population_variance_of_float64() -> None:
    risks = torch.rand(6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = risks.var(correction=0)
    torch.testing.assert_close(risk_variance(risks, torch.ones(6, dtype=torch.bool)), expected)
