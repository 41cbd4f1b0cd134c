"""The balance terms of GMoE against loops in float64 and by hand."""

import math
import statistics

import pytest
import torch
from torch import Tensor

from messi.algorithms.gmoe import importance_variation, load_variation, squared_variation


def slow_variation(amounts: list[float]) -> float:
    return statistics.variance(amounts) / statistics.fmean(amounts) ** 2


def slow_importance(logits: Tensor) -> float:
    amounts = [0.0] * logits.shape[1]
    for row in logits.double().tolist():
        exponentials = [math.exp(value) for value in row]
        for e, value in enumerate(exponentials):
            amounts[e] += value / sum(exponentials)
    return slow_variation(amounts)


def slow_load(logits: Tensor, thresholds: Tensor, scale: float) -> float:
    amounts = [0.0] * logits.shape[1]
    for row, (threshold,) in zip(logits.double().tolist(), thresholds.double().tolist(), strict=True):
        for e, value in enumerate(row):
            amounts[e] += 0.5 * (1 + math.erf((value - threshold) / scale / math.sqrt(2)))
    return slow_variation(amounts)


def routed(tokens: int = 50, experts: int = 6, scale: float = 1 / 6) -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    logits = torch.randn(tokens, experts) + torch.arange(experts) / 3
    noisy = logits + scale * torch.randn_like(logits)
    return logits, noisy.amax(-1, keepdim=True)


def test_variation_by_hand() -> None:
    amounts = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    value = squared_variation(amounts)
    (gradient,) = torch.autograd.grad(value, amounts)
    assert value.item() == pytest.approx(1 / 4)
    # d(var / mean^2): var' = (a - 2) and mean' = 1/3, so (a - 2) / 4 - 2 / 8 / 3.
    assert gradient.tolist() == pytest.approx([-1 / 4 - 1 / 12, -1 / 12, 1 / 4 - 1 / 12])


def test_both_match_loops_in_float64() -> None:
    logits, thresholds = routed()
    assert importance_variation(logits).item() == pytest.approx(slow_importance(logits), rel=1e-5)
    load = load_variation(logits, thresholds, scale=1 / 6)
    assert load.item() == pytest.approx(slow_load(logits, thresholds, 1 / 6), rel=1e-5)


def test_the_load_is_the_probability_that_new_noise_reaches_the_threshold() -> None:
    """Threshold and noise are in units of the logits; Tutel compares a probability with a logit."""
    logits, threshold, scale = torch.tensor([[0.3, 0.1, -0.2]]), torch.tensor([[0.25]]), 0.2
    draws = logits + scale * torch.randn(100_000, 3, generator=torch.Generator().manual_seed(0))
    counted = (draws >= threshold).double().mean(0)
    # Probabilities of 0.6, 0.2 and 0.01 estimated from 100,000 draws are accurate to 0.0016.
    assert load_variation(logits, threshold, scale=scale).item() == pytest.approx(
        squared_variation(counted).item(), rel=0.02
    )


def test_even_use_costs_nothing_and_a_single_expert_costs_most() -> None:
    assert importance_variation(torch.zeros(9, 4)).item() == pytest.approx(0, abs=1e-6)
    assert load_variation(torch.zeros(9, 4), torch.zeros(9, 1), scale=0.5).item() == pytest.approx(0, abs=1e-6)
    alone = torch.full((9, 4), -100.0)
    alone[:, 2] = 100
    # One of n has everything: var = mean^2 n, so CV^2 = n.
    assert importance_variation(alone).item() == pytest.approx(4)
    assert load_variation(alone, torch.zeros(9, 1), scale=0.5).item() == pytest.approx(4)


@pytest.mark.parametrize("experts", [1, 4])
@pytest.mark.parametrize("size", [0.0, 1.0, 100.0])
def test_gradients_are_finite_for_a_very_confident_router(experts: int, size: float) -> None:
    logits, thresholds = routed(tokens=5, experts=experts)
    leaf = (size * logits).requires_grad_()
    value = importance_variation(leaf) + load_variation(leaf, size * thresholds, scale=0.1)
    value.backward()
    assert leaf.grad is not None
    assert value.isfinite()
    assert leaf.grad.isfinite().all()


def test_a_single_expert_is_always_balanced() -> None:
    logits, thresholds = routed(experts=1)
    assert importance_variation(logits).item() == 0
    assert load_variation(logits, thresholds, scale=1.0).item() == 0
