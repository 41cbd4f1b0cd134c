"""The weights of Group DRO, step by step."""

import dataclasses
import math

import torch
from torch import Tensor
from torch.nn import functional

from messi.algorithms.group_dro import GroupDRO
from messi.core.batch import Batch, Task
from messi.models.encoder import EncoderConfig


def build(eta: float = 0.5, *, num_domains: int = 4) -> tuple[GroupDRO, Batch]:
    torch.manual_seed(0)
    task = Task(input_shape=(5,), num_classes=3, num_domains=num_domains)
    algorithm = GroupDRO(GroupDRO.Config(eta=eta), task=task, encoder=EncoderConfig(backbone="identity"))
    domains = torch.tensor([0, 1, 3, 3, 0, 0, 1, 0])
    return algorithm, Batch(inputs=torch.randn(8, 5), labels=torch.randint(3, (8,)), domains=domains)


def domain_losses(algorithm: GroupDRO, batch: Batch) -> dict[int, Tensor]:
    logits = algorithm.classifier(algorithm.encoder(batch.inputs))
    return {
        domain: functional.cross_entropy(logits[batch.domains == domain], batch.labels[batch.domains == domain])
        for domain in batch.domains.unique().tolist()
    }


def test_weights_and_loss_follow_the_definition_over_several_steps() -> None:
    algorithm, batch = build()
    weights = [1 / 4] * 4
    for step in range(5):
        moved = torch.where(batch.domains == step % 4, (step + 1) % 4, batch.domains)  # each step lacks some domain
        given = dataclasses.replace(batch, domains=moved)
        losses = {domain: loss.item() for domain, loss in domain_losses(algorithm, given).items()}
        weights = [weight * math.exp(0.5 * losses.get(k, 0.0)) for k, weight in enumerate(weights)]
        weights = [weight / sum(weights) for weight in weights]
        expected = sum(weights[k] * loss for k, loss in losses.items())
        terms = algorithm.loss(given)
        torch.testing.assert_close(terms["cls"].item(), expected, rtol=1e-5, atol=0)
        torch.testing.assert_close(algorithm.log_weights.exp().tolist(), weights, rtol=1e-5, atol=0)


def test_the_first_weights_of_two_domains_by_hand() -> None:
    """The loss of the second domain, log 4, exceeds the first by log 2, so its weight is twice as high."""
    algorithm, _ = build(eta=1.0, num_domains=2)
    torch.nn.init.zeros_(algorithm.classifier.weight)
    with torch.no_grad():
        algorithm.classifier.bias.copy_(torch.tensor([0.5, 0.25, 0.25]).log())
    batch = Batch(inputs=torch.zeros(2, 5), labels=torch.tensor([0, 1]), domains=torch.tensor([0, 1]))
    terms = algorithm.loss(batch)
    torch.testing.assert_close(algorithm.log_weights.exp(), torch.tensor([1 / 3, 2 / 3]))
    torch.testing.assert_close(terms["cls"].item(), math.log(2) / 3 + 2 * math.log(4) / 3, rtol=1e-6, atol=0)


def test_the_weights_are_constants_for_the_gradient() -> None:
    algorithm, batch = build()
    (gradient,) = torch.autograd.grad(algorithm.loss(batch)["cls"], algorithm.classifier.weight)
    weights = algorithm.log_weights.exp()
    fixed = torch.stack([weights[k] * loss for k, loss in domain_losses(algorithm, batch).items()]).sum()
    (expected,) = torch.autograd.grad(fixed, algorithm.classifier.weight)
    torch.testing.assert_close(gradient, expected)


def test_a_weight_below_the_smallest_float_grows_again() -> None:
    algorithm, batch = build(eta=1.0, num_domains=2)
    only_first = dataclasses.replace(batch, domains=torch.zeros_like(batch.domains))
    for _ in range(200):
        algorithm.loss(only_first)
    assert algorithm.log_weights.exp()[1] == 0
    for _ in range(400):
        algorithm.loss(dataclasses.replace(batch, domains=torch.ones_like(batch.domains)))
    assert algorithm.log_weights.exp()[1] > 0.99


def test_the_weights_are_saved_and_one_domain_is_erm() -> None:
    algorithm, batch = build(num_domains=1)
    alone = dataclasses.replace(batch, domains=torch.zeros_like(batch.domains))
    expected = functional.cross_entropy(algorithm.classifier(batch.inputs), batch.labels)
    torch.testing.assert_close(algorithm.loss(alone)["cls"], expected)
    assert "log_weights" in algorithm.state_dict()


def test_the_default_is_domainbeds() -> None:
    assert GroupDRO.Config().eta == 0.01
