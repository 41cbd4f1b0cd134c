"""IRM's schedule: when the penalty gets its weight and the optimizer starts anew."""

import dataclasses

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from messi.algorithms.irm import Irm
from messi.core.batch import Batch, Task
from messi.engine.stepper import AdamStepper
from messi.losses.classification import domain_mean_cross_entropy
from messi.losses.invariant_risk import invariant_risk
from messi.models.encoder import EncoderConfig


def build(**settings: float) -> tuple[Irm, Batch]:
    torch.manual_seed(0)
    task = Task(input_shape=(5,), num_classes=3, num_domains=2)
    config = Irm.Config(**settings)  # type: ignore[arg-type]  # the tests' own
    algorithm = Irm(config, task=task, encoder=EncoderConfig(backbone="identity"))
    domains = torch.arange(2).repeat(8)
    return algorithm, Batch(inputs=torch.randn(16, 5), labels=torch.randint(3, (16,)), domains=domains)


@pytest.mark.parametrize(("step", "weight"), [(1, 1.0), (4, 1.0), (5, 30.0), (6, 30.0)])
def test_the_penalty_has_weight_one_in_the_first_steps_and_its_own_after_them(step: int, weight: float) -> None:
    algorithm, batch = build(penalty_weight=30.0, anneal_steps=4)
    logits = algorithm.classifier(algorithm.encoder(batch.inputs))
    terms = algorithm.loss(dataclasses.replace(batch, step=step))
    torch.testing.assert_close(terms["irm"], weight * invariant_risk(logits, batch.labels, batch.domains, 2))
    torch.testing.assert_close(terms["cls"], domain_mean_cross_entropy(logits, batch.labels, batch.domains))


def test_there_are_two_kinds_of_steps_and_the_optimizer_restarts_between_them() -> None:
    algorithm, _ = build(anneal_steps=4)
    assert [algorithm.phase(step) for step in range(1, 8)] == [False] * 4 + [True] * 3
    assert algorithm.restart == 5
    assert build(anneal_steps=0)[0].phase(1)


def test_the_defaults_are_domainbeds() -> None:
    assert (Irm.Config().penalty_weight, Irm.Config().anneal_steps) == (100, 500)


def penalty_by_autograd(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the product of the two halves' gradients by a scale, for the examples of one domain."""
    scale = torch.ones((), requires_grad=True)
    risks = [functional.cross_entropy(scale * logits[start::2], labels[start::2]) for start in (0, 1)]
    first, second = (torch.autograd.grad(risk, scale, create_graph=True)[0] for risk in risks)
    return first * second


def test_steps_are_those_of_a_loop_that_counts_updates_from_zero() -> None:
    """DomainBed's schedule: the weight changes, and Adam is made anew, in the update numbered ``anneal_steps``."""
    algorithm, batch = build(penalty_weight=50.0, anneal_steps=3)
    twin = nn.Linear(5, 3)
    twin.load_state_dict(algorithm.classifier.state_dict())
    stepper = AdamStepper(algorithm, learning_rate=1e-2, weight_decay=1e-3)
    optimizer = torch.optim.Adam(twin.parameters(), lr=1e-2, weight_decay=1e-3)
    for count in range(6):
        logits, loss = twin(batch.inputs), torch.zeros(())
        for domain in (0, 1):
            own, labels = logits[batch.domains == domain], batch.labels[batch.domains == domain]
            weight = 50.0 if count >= 3 else 1.0
            loss = loss + (functional.cross_entropy(own, labels) + weight * penalty_by_autograd(own, labels)) / 2
        if count == 3:
            optimizer = torch.optim.Adam(twin.parameters(), lr=1e-2, weight_decay=1e-3)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if count + 1 == algorithm.restart:
            stepper.reset()
        algorithm.update(dataclasses.replace(batch, step=count + 1), stepper)
        torch.testing.assert_close(algorithm.classifier.weight, twin.weight, rtol=1e-4, atol=1e-6)
