"""MMD between domains against the formula written out pair by pair, a hand-computed case and laws."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from messi.discrepancy.mmd import domain_mmd

DOMAINS = torch.tensor([0, 3, 1, 0, 1, 0, 1, 1, 0])
"""Domain 2 is absent, domain 3 has one example."""


def random_features(dtype: torch.dtype = torch.float64, *, scale: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return (scale * (torch.randn(len(DOMAINS), 4, dtype=torch.float64, generator=generator) + DOMAINS[:, None] / 2)).to(
        dtype
    )


def literal(features: Tensor, domains: Tensor) -> Tensor:
    """Return E k(x, x') + E k(y, y') - 2 E k(x, y), averaged over the pairs of domains that occur."""

    def kernel(x: Tensor, y: Tensor) -> Tensor:
        values = [
            sum((torch.exp(-(10.0**power) * (a - b).square().sum()) for power in range(-3, 4)), a.new_zeros(()))
            for a, b in itertools.product(x, y)
        ]
        return torch.stack(values).mean()

    clouds = [features.double()[domains == domain] for domain in domains.unique()]
    penalties = [kernel(x, x) + kernel(y, y) - 2 * kernel(x, y) for x, y in itertools.combinations(clouds, 2)]
    return torch.stack(penalties).mean()


# In float32 means of kernels of size 7 are subtracted: 1e-6 is what their rounding leaves.
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize("scale", [0.01, 1.0, 30.0])
def test_value_and_gradient_match_the_formula(dtype: torch.dtype, tolerance: float, scale: float) -> None:
    features = random_features(dtype, scale=scale).requires_grad_()
    value, expected = domain_mmd(features, DOMAINS, 5), literal(features, DOMAINS)
    assert value.item() == pytest.approx(expected.item(), rel=tolerance, abs=tolerance / 10)
    (gradient,), (wanted,) = torch.autograd.grad(value, features), torch.autograd.grad(expected, features)
    assert (gradient - wanted).norm() <= 10 * tolerance * wanted.norm()


def test_two_diracs_by_hand() -> None:
    # |x - y|^2 = 1: the kernel of a point with itself is 7.
    value = domain_mmd(torch.tensor([[0.0], [1.0]]), torch.tensor([1, 0]), 2)
    kernel = sum(math.exp(-(10.0**power)) for power in range(-3, 4))
    assert value.item() == pytest.approx(14 - 2 * kernel, rel=1e-6)


@pytest.mark.parametrize("num_domains", [1, 3])
def test_one_domain_costs_nothing(num_domains: int) -> None:
    features = random_features().requires_grad_()
    value = domain_mmd(features, torch.zeros_like(DOMAINS), num_domains)
    (gradient,) = torch.autograd.grad(value, features)
    assert value.item() == 0
    assert not gradient.any()


def test_equal_points_have_zero_gradient() -> None:
    features = torch.full((6, 3), 0.7, requires_grad=True)
    value = domain_mmd(features, torch.arange(3).repeat(2), 3)
    (gradient,) = torch.autograd.grad(value, features)
    assert abs(value.item()) < 1e-5
    assert not gradient.any()


def test_same_clouds_cost_nothing() -> None:
    features = random_features()
    twice, domains = features.repeat(2, 1), torch.arange(2).repeat_interleave(len(features))
    assert abs(domain_mmd(twice, domains, 2).item()) < 1e-13


def test_half_precision_is_computed_in_float32_even_under_autocast() -> None:
    features = random_features().bfloat16()
    wide = domain_mmd(features.float(), DOMAINS, 4)
    with torch.autocast("cpu", torch.bfloat16):
        value = domain_mmd(features, DOMAINS, 4)
    assert value.dtype == torch.float32
    assert value.item() == wide.item()


def test_gradcheck() -> None:
    features = random_features().requires_grad_()
    # A step of 1e-6 is small compared with the width 1/sqrt(1000) of the narrowest kernel.
    assert torch.autograd.gradcheck(lambda x: domain_mmd(x, DOMAINS, 4), (features,))
