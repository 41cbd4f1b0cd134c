"""The two kinds of penalised methods: on the features (CORAL, MMD), and annealed on the logits (IRM, V-REx).

The distances that CORAL and MMD penalise are tested in tests/discrepancy.
"""

import dataclasses

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from messi.algorithms.common.penalised import AnnealedPenalty, PenalisedFeatures
from messi.algorithms.coral import CORAL
from messi.algorithms.irm import IRM
from messi.algorithms.mmd import MMD
from messi.algorithms.vrex import VREx
from messi.core.batch import Batch, Task
from messi.core.errors import MessiError
from messi.discrepancy.coral import coral
from messi.discrepancy.mmd import domain_mmd
from messi.engine.stepper import AdamStepper, OptimizerConfig
from messi.losses.by_domain import domain_mean_cross_entropy
from messi.models.encoder import EncoderConfig

DOMAINS = torch.tensor([0, 1, 3, 3, 0, 0, 1, 0, 1, 3, 1, 3])


def risks(logits: Tensor, labels: Tensor) -> list[Tensor]:
    """Return the mean loss of every present domain."""
    chosen = [domain == DOMAINS for domain in DOMAINS.unique()]
    return [functional.cross_entropy(logits[own], labels[own]) for own in chosen]


def irm(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean over domains of the product of two halves' gradients with respect to a scale."""
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
ANNEALED = pytest.mark.parametrize("method", PENALTIES)


def build_annealed(method: type[AnnealedPenalty], **settings: float) -> tuple[AnnealedPenalty, Batch]:
    torch.manual_seed(0)
    task = Task(input_shape=(5,), num_classes=3, num_domains=4)
    config = method.Config(**settings)  # type: ignore[arg-type]
    algorithm = method(config, task=task, encoder=EncoderConfig(backbone="identity"))
    return algorithm, Batch(inputs=torch.randn(12, 5), labels=torch.randint(3, (12,)), domains=DOMAINS)


@ANNEALED
@pytest.mark.parametrize(("step", "weight"), [(1, 1.0), (4, 1.0), (5, 30.0), (6, 30.0)])
def test_the_penalty_weight_is_one_until_annealing_ends(
    method: type[AnnealedPenalty], step: int, weight: float
) -> None:
    algorithm, batch = build_annealed(method, penalty_weight=30.0, anneal_steps=4)
    logits = algorithm.classifier(algorithm.encoder(batch.inputs))
    terms = algorithm.loss(dataclasses.replace(batch, step=step))
    torch.testing.assert_close(terms[algorithm.config.name], weight * PENALTIES[method](logits, batch.labels))
    torch.testing.assert_close(terms["cls"], domain_mean_cross_entropy(logits, batch.labels, batch.domains))


@ANNEALED
def test_phase_and_optimizer_change_when_annealing_ends(method: type[AnnealedPenalty]) -> None:
    algorithm, _ = build_annealed(method, anneal_steps=4)
    assert [algorithm.phase(step) for step in range(1, 8)] == [False] * 4 + [True] * 3
    assert algorithm.restart == 5
    assert build_annealed(method, anneal_steps=0)[0].phase(1)


def test_the_annealed_defaults_are_domainbeds() -> None:
    assert (IRM.Config().penalty_weight, IRM.Config().anneal_steps) == (100, 500)
    assert (VREx.Config().penalty_weight, VREx.Config().anneal_steps) == (10, 500)


@ANNEALED
def test_steps_match_a_loop_that_counts_updates_from_zero(method: type[AnnealedPenalty]) -> None:
    """DomainBed's schedule: the weight changes and Adam is reset in the update numbered ``anneal_steps``."""
    algorithm, batch = build_annealed(method, penalty_weight=50.0, anneal_steps=3)
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


DISTANCES = {CORAL: coral, MMD: domain_mmd}
ON_FEATURES = pytest.mark.parametrize("method", DISTANCES)


def build_on_features(method: type[PenalisedFeatures], gamma: float = 1.0) -> tuple[PenalisedFeatures, Batch]:
    torch.manual_seed(0)
    task = Task(input_shape=(5,), num_classes=3, num_domains=4)
    algorithm = method(method.Config(gamma=gamma), task=task, encoder=EncoderConfig(backbone="mlp"))
    domains = torch.tensor([0, 0, 1, 3, 1, 3, 3, 0, 1])
    return algorithm, Batch(inputs=torch.randn(9, 5), labels=torch.randint(3, (9,)), domains=domains)


@ON_FEATURES
def test_the_loss_is_cross_entropy_plus_gamma_times_the_distance(
    method: type[PenalisedFeatures],
) -> None:
    algorithm, batch = build_on_features(method, gamma=0.3)
    name, features = algorithm.config.name, algorithm.encoder(batch.inputs)
    terms = algorithm.loss(batch)
    expected = domain_mean_cross_entropy(algorithm.classifier(features), batch.labels, batch.domains)
    torch.testing.assert_close(terms["cls"], expected)
    torch.testing.assert_close(terms[name], 0.3 * DISTANCES[method](features, batch.domains, 4))
    assert list(terms) == ["cls", name]


@ON_FEATURES
def test_a_penalty_on_features_trains_the_encoder_and_not_the_classifier(method: type[PenalisedFeatures]) -> None:
    algorithm, batch = build_on_features(method)
    algorithm.loss(batch)[algorithm.config.name].backward()
    assert all(parameter.grad is not None for parameter in algorithm.encoder.parameters())
    assert all(parameter.grad is None for parameter in algorithm.classifier.parameters())


@ON_FEATURES
def test_gamma_has_domainbeds_default_and_must_not_be_negative(method: type[PenalisedFeatures]) -> None:
    assert method.Config().gamma == 1
    with pytest.raises(MessiError, match="gamma must be at least 0"):
        method.Config(gamma=-1)
