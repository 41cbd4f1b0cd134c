"""IRM and V-REx: when the penalty reaches its weight and the optimizer is reset."""

import dataclasses

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from messi.algorithms.common.penalised import AnnealedPenalty
from messi.algorithms.irm import IRM
from messi.algorithms.vrex import VREx
from messi.core.batch import Batch, Task
from messi.engine.stepper import AdamStepper, OptimizerConfig
from messi.losses.by_domain import domain_mean_cross_entropy
from messi.models.encoder import EncoderConfig

DOMAINS = torch.tensor([0, 1, 3, 3, 0, 0, 1, 0, 1, 3, 1, 3])


def risks(logits: Tensor, labels: Tensor) -> list[Tensor]:
    """Return the mean loss of every present domain."""
    chosen = [domain == DOMAINS for domain in DOMAINS.unique()]
    return [functional.cross_entropy(logits[own], labels[own]) for own in chosen]


def irm(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean over domains of the product of two halves' gradients by a scale."""
    products = []
    for domain in DOMAINS.unique():
        own, wanted = logits[domain == DOMAINS], labels[domain == DOMAINS]
        scale = torch.ones((), requires_grad=True)
        halves = [functional.cross_entropy(scale * own[start::2], wanted[start::2]) for start in (0, 1)]
        first, second = (torch.autograd.grad(half, scale, create_graph=True)[0] for half in halves)
        products.append(first * second)
    return torch.stack(products).mean()


def vrex(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the variance of the risks."""
    of_domains = torch.stack(risks(logits, labels))
    return ((of_domains - of_domains.mean()) ** 2).mean()


PENALTIES = {IRM: irm, VREx: vrex}
METHODS = pytest.mark.parametrize("method", PENALTIES)


def build(method: type[AnnealedPenalty], **settings: float) -> tuple[AnnealedPenalty, Batch]:
    torch.manual_seed(0)
    task = Task(input_shape=(5,), num_classes=3, num_domains=4)
    config = method.Config(**settings)  # type: ignore[arg-type]  # the tests' own
    algorithm = method(config, task=task, encoder=EncoderConfig(backbone="identity"))
    return algorithm, Batch(inputs=torch.randn(12, 5), labels=torch.randint(3, (12,)), domains=DOMAINS)


@METHODS
@pytest.mark.parametrize(("step", "weight"), [(1, 1.0), (4, 1.0), (5, 30.0), (6, 30.0)])
def test_the_penalty_has_weight_one_in_the_first_steps_and_its_own_after_them(
    method: type[AnnealedPenalty], step: int, weight: float
) -> None:
    algorithm, batch = build(method, penalty_weight=30.0, anneal_steps=4)
    logits = algorithm.classifier(algorithm.encoder(batch.inputs))
    terms = algorithm.loss(dataclasses.replace(batch, step=step))
    torch.testing.assert_close(terms[algorithm.config.name], weight * PENALTIES[method](logits, batch.labels))
    torch.testing.assert_close(terms["cls"], domain_mean_cross_entropy(logits, batch.labels, batch.domains))


@METHODS
def test_there_are_two_kinds_of_steps_and_the_optimizer_restarts_between_them(method: type[AnnealedPenalty]) -> None:
    algorithm, _ = build(method, anneal_steps=4)
    assert [algorithm.phase(step) for step in range(1, 8)] == [False] * 4 + [True] * 3
    assert algorithm.restart == 5
    assert build(method, anneal_steps=0)[0].phase(1)


def test_the_defaults_are_domainbeds() -> None:
    assert (IRM.Config().penalty_weight, IRM.Config().anneal_steps) == (100, 500)
    assert (VREx.Config().penalty_weight, VREx.Config().anneal_steps) == (10, 500)


@METHODS
def test_steps_are_those_of_a_loop_that_counts_updates_from_zero(method: type[AnnealedPenalty]) -> None:
    """DomainBed's schedule: the weight changes and Adam is reset in the update numbered ``anneal_steps``."""
    algorithm, batch = build(method, penalty_weight=50.0, anneal_steps=3)
    twin = nn.Linear(5, 3)
    twin.load_state_dict(algorithm.classifier.state_dict())
    stepper = AdamStepper(algorithm, OptimizerConfig(learning_rate=1e-2, weight_decay=1e-3))
    optimizer = torch.optim.Adam(twin.parameters(), lr=1e-2, weight_decay=1e-3)
    for count in range(6):
        logits = twin(batch.inputs)
        penalty = PENALTIES[method](logits, batch.labels)
        loss = torch.stack(risks(logits, batch.labels)).mean() + (50.0 if count >= 3 else 1.0) * penalty
        if count == 3:
            optimizer = torch.optim.Adam(twin.parameters(), lr=1e-2, weight_decay=1e-3)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if count + 1 == algorithm.restart:
            stepper.reset()
        algorithm.update(dataclasses.replace(batch, step=count + 1), stepper)
        torch.testing.assert_close(algorithm.classifier.weight, twin.weight, rtol=1e-4, atol=1e-6)
