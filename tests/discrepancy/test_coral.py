"""CORAL against the formula written out domain by domain, a hand-computed case and laws."""

import itertools

import pytest
import torch
from torch import Tensor

from messi.discrepancy.coral import coral

DOMAINS = torch.tensor([0, 3, 1, 0, 1, 0, 1, 1, 0])
"""Domain 2 is absent, domain 3 has one example."""


def random_features(dtype: torch.dtype = torch.float64, width: int = 4, *, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    scales = 1 + DOMAINS[:, None] / 2
    return (torch.randn(len(DOMAINS), width, dtype=torch.float64, generator=generator) * scales + DOMAINS[:, None]).to(
        dtype
    )


def literal(features: Tensor, domains: Tensor) -> Tensor:
    """Return mean((mu_i - mu_j)^2) + mean((C_i - C_j)^2), averaged over the pairs of domains that occur."""

    def moments(domain: int) -> tuple[Tensor, Tensor]:
        cloud = features.double()[domains == domain]
        width = cloud.shape[1]
        covariance = torch.cov(cloud.T) if len(cloud) > 1 else cloud.new_zeros(width, width)
        return cloud.mean(0), covariance.reshape(width, width)

    penalties = [
        (mean - other_mean).square().mean() + (covariance - other).square().mean()
        for (mean, covariance), (other_mean, other) in itertools.combinations(
            map(moments, domains.unique().tolist()), 2
        )
    ]
    return torch.stack(penalties).mean()


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_value_and_gradient_match_the_formula(dtype: torch.dtype, tolerance: float) -> None:
    features = random_features(dtype).requires_grad_()
    value, expected = coral(features, DOMAINS, 5), literal(features, DOMAINS)
    assert value.item() == pytest.approx(expected.item(), rel=tolerance)
    (gradient,), (wanted,) = torch.autograd.grad(value, features), torch.autograd.grad(expected, features)
    assert (gradient - wanted).norm() <= tolerance * wanted.norm()


def test_float32_is_accurate_for_features_of_realistic_size() -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(96, 384, generator=generator) + 3 * torch.randn(384, generator=generator)
    domains = torch.arange(3).repeat(32)
    leaf = features.requires_grad_()
    value, expected = coral(leaf, domains, 3), literal(leaf, domains)
    assert value.item() == pytest.approx(expected.item(), rel=1e-5)
    (gradient,), (wanted,) = torch.autograd.grad(value, leaf), torch.autograd.grad(expected, leaf)
    assert (gradient - wanted).norm() <= 1e-5 * wanted.norm()


def test_two_domains_by_hand() -> None:
    # Means 1 and 3; variances ((0-1)^2 + (2-1)^2) / 1 = 2 and ((1-3)^2 + (5-3)^2) / 1 = 8: 2^2 + 6^2.
    features, domains = torch.tensor([[0.0], [1.0], [2.0], [5.0]]), torch.tensor([0, 1, 0, 1])
    assert coral(features, domains, 2).item() == pytest.approx(40, rel=1e-6)


def test_penalty_is_a_mean_over_the_features() -> None:
    features = random_features(width=1)
    assert coral(features, DOMAINS, 4).item() > 0
    # Twice the same feature: its mean term stays, and of its four covariances each is the old variance.
    torch.testing.assert_close(coral(features.repeat(1, 2), DOMAINS, 4), coral(features, DOMAINS, 4))


def test_a_single_example_has_zero_covariance() -> None:
    # Means 0 and 1, variances 2 and 0.
    features = torch.tensor([[-1.0], [1.0], [1.0]], requires_grad=True)
    value = coral(features, torch.tensor([0, 0, 1]), 2)
    (gradient,) = torch.autograd.grad(value, features)
    assert value.item() == pytest.approx(5, rel=1e-6)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("num_domains", [1, 3])
def test_one_domain_costs_nothing(num_domains: int) -> None:
    features = random_features().requires_grad_()
    value = coral(features, torch.zeros_like(DOMAINS), num_domains)
    (gradient,) = torch.autograd.grad(value, features)
    assert value.item() == 0
    assert not gradient.any()


def test_common_offset_does_not_matter_even_in_float32() -> None:
    # 1000 in float32 is rounded by 6e-5, which is what may be left of features of size 1.
    features = random_features(torch.float32)
    torch.testing.assert_close(coral(features + 1000, DOMAINS, 4), coral(features, DOMAINS, 4), rtol=1e-3, atol=0)


def test_same_clouds_cost_nothing() -> None:
    features = random_features(torch.float32)
    twice, domains = features.repeat(2, 1), torch.arange(2).repeat_interleave(len(features))
    value = coral(twice.requires_grad_(), domains, 2)
    (gradient,) = torch.autograd.grad(value, twice)
    # Differences of squared norms of size 100 in float32.
    assert abs(value.item()) < 1e-4
    assert float(gradient.abs().max()) < 1e-4


def test_half_precision_is_computed_in_float32_even_under_autocast() -> None:
    features = random_features().bfloat16()
    wide = coral(features.float(), DOMAINS, 4)
    with torch.autocast("cpu", torch.bfloat16):
        value = coral(features, DOMAINS, 4)
    assert value.dtype == torch.float32
    assert value.item() == wide.item()


def test_gradcheck() -> None:
    features = random_features(width=2).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: coral(x, DOMAINS, 4), (features,))
