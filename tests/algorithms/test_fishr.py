"""Fishr's schedule and moving averages, step by step."""

import copy
import dataclasses
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from messi.algorithms.fishr import Fishr
from messi.core.batch import Batch, Task
from messi.engine.stepper import AdamStepper, OptimizerConfig
from messi.models.encoder import EncoderConfig

from .tolerance import near


def build(num_domains: int = 3, **settings: Any) -> Fishr:
    torch.manual_seed(0)
    task = Task(input_shape=(5,), num_classes=3, num_domains=num_domains)
    return Fishr(Fishr.Config(**settings), task=task, encoder=EncoderConfig(backbone="mlp"))


def make_batch(step: int, domains: tuple[int, ...] = (0, 1, 2) * 5) -> Batch:
    generator = torch.Generator().manual_seed(step)
    inputs = torch.randn(len(domains), 5, generator=generator)
    labels = torch.randint(3, (len(domains),), generator=generator)
    return Batch(inputs=inputs, labels=labels, domains=torch.tensor(domains), step=step)


def variance(features: Tensor, classifier: nn.Linear, labels: Tensor) -> Tensor:
    """Return the variance of all the classifier's gradients, taken example by example."""
    gradients = []
    for z, label in zip(features, labels, strict=True):
        loss = functional.cross_entropy(classifier(z)[None], label[None])
        both = torch.autograd.grad(loss, (classifier.weight, classifier.bias), create_graph=True)
        gradients.append(torch.cat([gradient.flatten() for gradient in both]))
    return torch.stack(gradients).var(0, correction=0)


def test_steps_match_a_direct_transcription() -> None:
    """Three steps without and three with the penalty; Adam is reset at the fourth, the moving averages are not.

    The batch of the third step lacks domain 1, whose average does not change.
    """
    algorithm = build(penalty_weight=300.0, anneal_steps=3, ema=0.8)
    twin = copy.deepcopy(algorithm)
    averages: dict[int, Tensor] = {}
    stepper = AdamStepper(algorithm, OptimizerConfig(learning_rate=1e-2, weight_decay=1e-3))
    zero = torch.zeros(3 * 33)
    for count in range(6):
        batch = make_batch(count + 1, (0, 2) * 6 if count == 2 else (0, 1, 2) * 5)
        if count in {0, 3}:
            adam = torch.optim.Adam(twin.parameters(), lr=1e-2, weight_decay=1e-3)
        features = twin.encoder(batch.inputs)
        corrected = []
        for domain in sorted(set(batch.domains.tolist())):
            own = batch.domains == domain
            new = 0.8 * averages.get(domain, zero) + 0.2 * variance(features[own], twin.classifier, batch.labels[own])
            averages[domain] = new.detach()
            corrected.append(new / 0.2)
        mean = torch.stack(corrected).mean(0)
        penalty = torch.stack([(one - mean).square().mean() for one in corrected]).mean()
        loss = (
            functional.cross_entropy(twin.classifier(features), batch.labels) + (300.0 if count >= 3 else 0) * penalty
        )
        adam.zero_grad()
        loss.backward()
        adam.step()
        if count + 1 == algorithm.restart:
            stepper.reset()
        terms = algorithm.update(batch, stepper)
        assert (terms["fishr"] > 0) == (count >= 3)
        near(sum(terms.values()), loss)
        for mine, theirs in zip(algorithm.parameters(), twin.parameters(), strict=True):
            near(mine, theirs)
    found = torch.cat([algorithm.variances[..., :-1].flatten(1), algorithm.variances[..., -1]], 1)
    near(found, torch.stack([averages[domain] for domain in range(3)]))


def test_phase_and_optimizer_change_when_annealing_ends() -> None:
    algorithm = build(anneal_steps=4)
    assert [algorithm.phase(step) for step in range(1, 8)] == [False] * 4 + [True] * 3
    assert algorithm.restart == 5
    assert build(anneal_steps=0).phase(1)


def test_the_first_moving_average_is_the_variance_itself() -> None:
    terms = [build(anneal_steps=0, ema=ema).loss(make_batch(1))["fishr"] for ema in (0.0, 0.5, 0.95)]
    torch.testing.assert_close(torch.stack(terms), terms[0].expand(3), rtol=1e-4, atol=0)


def test_one_domain_has_no_penalty() -> None:
    algorithm = build(num_domains=1, anneal_steps=0)
    terms = algorithm.loss(make_batch(1, (0,) * 6))
    assert terms["fishr"] == 0


def test_the_penalty_trains_encoder_and_classifier() -> None:
    algorithm = build(anneal_steps=0)
    algorithm.loss(make_batch(1))["fishr"].backward()
    for parameter in algorithm.parameters():
        assert parameter.grad is not None
        assert parameter.grad.abs().sum() > 0


def test_the_defaults_are_domainbeds() -> None:
    assert dataclasses.asdict(Fishr.Config()) == {"penalty_weight": 1e3, "anneal_steps": 1500, "ema": 0.95}
