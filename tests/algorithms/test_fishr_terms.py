"""The closed form of the gradient variances against gradients computed one by one."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from messi.algorithms.fishr import gradient_variances, variance_distance
from messi.discrepancy.domains import membership


def example(domains: list[int], *, classes: int = 3, width: int = 4) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return features, the joint weight and bias of a classifier, labels and domains."""
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(len(domains), width, generator=generator, dtype=torch.float64)
    layer = torch.randn(classes, width + 1, generator=generator, dtype=torch.float64)
    return features, layer, torch.randint(classes, (len(domains),), generator=generator), torch.tensor(domains)


def classify(features: Tensor, layer: Tensor) -> Tensor:
    return features @ layer[:, :-1].T + layer[:, -1]


def one_by_one(features: Tensor, layer: Tensor, labels: Tensor, domains: Tensor) -> dict[int, Tensor]:
    """Return the variance of autograd's gradients of every present domain's examples."""
    found: dict[int, list[Tensor]] = {}
    for z, label, domain in zip(features, labels, domains.tolist(), strict=True):
        loss = functional.cross_entropy(classify(z[None], layer), label[None])
        found.setdefault(domain, []).append(torch.autograd.grad(loss, layer, create_graph=True)[0])
    return {domain: torch.stack(gradients).var(0, correction=0) for domain, gradients in found.items()}


def closed(features: Tensor, layer: Tensor, labels: Tensor, domains: Tensor, number: int) -> tuple[Tensor, Tensor]:
    members = membership(domains, number)
    return gradient_variances(features, classify(features, layer), labels, members), members.any(1)


DOMAINS = [0, 0, 2, 0, 2, 2, 3, 0, 2]  # domain 1 is absent, domain 3 has one example


def test_variances_match_gradients_computed_one_by_one() -> None:
    features, layer, labels, domains = example(DOMAINS)
    layer.requires_grad_()
    variances, present = closed(features, layer, labels, domains, 4)
    assert present.tolist() == [True, False, True, True]
    wanted = one_by_one(features, layer, labels, domains)
    for domain in range(4):
        torch.testing.assert_close(variances[domain], wanted.get(domain, torch.zeros_like(layer)))


def test_the_distance_and_its_gradients_match_the_formula() -> None:
    features, layer, labels, domains = example(DOMAINS)
    features.requires_grad_()
    layer.requires_grad_()
    distance = variance_distance(*closed(features, layer, labels, domains, 4))
    wanted = list(one_by_one(features, layer, labels, domains).values())
    mean = sum(wanted, torch.zeros_like(layer)) / len(wanted)
    literal = torch.stack([(variance - mean).square().mean() for variance in wanted]).mean()
    torch.testing.assert_close(distance, literal)
    for mine, theirs in zip(
        torch.autograd.grad(distance, (features, layer)), torch.autograd.grad(literal, (features, layer)), strict=True
    ):
        torch.testing.assert_close(mine, theirs)


def test_by_hand() -> None:
    # Two classes with equal probabilities, labels 0 and 1, features 1 and 3: the gradients of the first row of the
    # weight are -1/2 and 3/2 (variance 1), those of its bias -1/2 and 1/2 (variance 1/4); those of the second row are
    # their negatives. The other domain has twice the same example, so its variance is 0.
    features, labels = torch.tensor([[1.0], [3.0], [2.0], [2.0]]), torch.tensor([0, 1, 0, 0])
    members = membership(torch.tensor([0, 0, 1, 1]), 2)
    variances = gradient_variances(features, torch.zeros(4, 2), labels, members)
    assert variances.tolist() == [[[1.0, 0.25], [1.0, 0.25]], [[0.0, 0.0], [0.0, 0.0]]]
    # From the mean, half of each: both domains are off by (1/2)^2 and (1/8)^2 in the mean over the entries.
    distance = variance_distance(variances, torch.tensor([True, True]))
    assert distance.item() == pytest.approx((1 / 4 + 1 / 64) / 2)


@pytest.mark.parametrize("domains", [[0, 0, 0, 0], [2, 2, 2], [0]])
def test_a_single_domain_has_no_distance_and_a_gradient_of_zero(domains: list[int]) -> None:
    features, layer, labels, ids = example(domains)
    features.requires_grad_()
    distance = variance_distance(*closed(features, layer, labels, ids, 3))
    (gradient,) = torch.autograd.grad(distance, features)
    assert distance.item() == 0
    assert (gradient == 0).all()


def test_absent_domains_have_no_effect() -> None:
    variances = torch.tensor([[1.0], [100.0], [3.0]])
    assert variance_distance(variances, torch.tensor([True, False, True])).item() == 1.0


def test_bfloat16_is_computed_in_float32() -> None:
    features, layer, labels, domains = example(DOMAINS)
    members, low = membership(domains, 4), features.bfloat16()
    logits = classify(features, layer).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        variances = gradient_variances(low, logits, labels, members)
    assert variances.dtype == torch.float32
    assert torch.equal(variances, gradient_variances(low.float(), logits.float(), labels, members))
