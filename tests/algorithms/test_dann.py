"""DANN's two networks: which one a step trains, and with which loss; the other one does not change."""

import copy
import dataclasses
import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from messi.algorithms.dann import DANN
from messi.core.batch import Batch, Task
from messi.engine.stepper import AdamStepper, OptimizerConfig
from messi.models.encoder import EncoderConfig

from .tolerance import near


def build(num_domains: int = 3, **settings: Any) -> tuple[DANN, list[Batch]]:
    torch.manual_seed(0)
    task = Task(input_shape=(5,), num_classes=2, num_domains=num_domains)
    algorithm = DANN(DANN.Config(**settings), task=task, encoder=EncoderConfig(backbone="mlp"))
    domains = torch.arange(num_domains).repeat(4)
    batches = [
        Batch(inputs=torch.randn(len(domains), 5), labels=torch.randint(2, (len(domains),)), domains=domains, step=step)
        for step in range(1, 7)
    ]
    return algorithm, batches


@pytest.mark.parametrize(("steps", "turns"), [(1, "dgdgdgd"), (2, "ddgddgd"), (4, "ddddgdd")])
def test_the_discriminator_takes_its_steps_before_each_generator_step(steps: int, turns: str) -> None:
    algorithm, _ = build(discriminator_steps=steps)
    assert "".join(algorithm.phase(step)[0] for step in range(1, 8)) == turns


@pytest.mark.parametrize("step", [1, 2])
def test_a_step_changes_only_one_side(step: int) -> None:
    algorithm, batches = build()
    before = copy.deepcopy(algorithm.state_dict())
    algorithm.update(batches[step - 1], AdamStepper(algorithm, OptimizerConfig(learning_rate=1e-2, weight_decay=1e-3)))
    moved = {
        key.partition(".")[0] for key, value in algorithm.state_dict().items() if not torch.equal(value, before[key])
    }
    assert moved == ({"discriminator"} if step == 1 else {"encoder", "classifier"})


def test_every_step_has_the_same_terms_with_zeros_for_the_untrained_side() -> None:
    algorithm, batches = build()
    first, second = algorithm.loss(batches[0]), algorithm.loss(batches[1])
    assert list(first) == list(second) == ["cls", "adv", "disc"]
    assert first["cls"] == first["adv"] == second["disc"] == 0
    assert first["disc"] > 0
    assert second["adv"] < 0


@pytest.mark.parametrize("penalty", [0.0, 0.3])
@pytest.mark.parametrize("steps", [1, 2])
def test_steps_match_a_direct_transcription(penalty: float, steps: int) -> None:
    algorithm, batches = build(adversary_weight=0.7, gradient_penalty=penalty, discriminator_steps=steps)
    twin = copy.deepcopy(algorithm)
    stepper = AdamStepper(algorithm, OptimizerConfig(learning_rate=1e-2, weight_decay=1e-3))
    generator = nn.ModuleList([twin.encoder, twin.classifier])
    adams = {
        "generator": torch.optim.Adam(generator.parameters(), lr=1e-2, betas=(0.5, 0.9), weight_decay=1e-3),
        "discriminator": torch.optim.Adam(
            twin.discriminator.parameters(), lr=1e-2, betas=(0.5, 0.9), weight_decay=1e-3
        ),
    }
    for count, batch in enumerate(batches):
        features = twin.encoder(batch.inputs)
        logits = twin.discriminator.mlp(features)
        (slope,) = torch.autograd.grad(
            functional.cross_entropy(logits, batch.domains, reduction="sum"), features, create_graph=True
        )
        loss = functional.cross_entropy(logits, batch.domains) + penalty * slope.square().sum(1).mean()
        side = "discriminator" if count % (steps + 1) < steps else "generator"
        if side == "generator":
            loss = functional.cross_entropy(twin.classifier(features), batch.labels) - 0.7 * loss
        twin.zero_grad()
        loss.backward()
        adams[side].step()
        algorithm.update(batch, stepper)
        for mine, theirs in zip(algorithm.parameters(), twin.parameters(), strict=True):
            near(mine, theirs)


def test_the_discriminator_may_have_its_own_learning_rate() -> None:
    stepper = AdamStepper(
        build(discriminator_learning_rate=0.5, momentum=0.0)[0], OptimizerConfig(learning_rate=0.1, weight_decay=0)
    )
    settings = {name: optimizer.param_groups[0] for name, optimizer in stepper.optimizers.items()}
    assert {name: group["lr"] for name, group in settings.items()} == {"generator": 0.1, "discriminator": 0.5}
    assert all(group["betas"] == (0.0, 0.9) for group in settings.values())


def test_with_one_domain_the_adversarial_terms_are_zero() -> None:
    algorithm, batches = build(num_domains=1, gradient_penalty=1.0)
    stepper = AdamStepper(algorithm, OptimizerConfig(learning_rate=1e-2, weight_decay=0))
    for batch in batches[:2]:
        terms = algorithm.update(batch, stepper)
        assert terms["adv"] == terms["disc"] == 0
    assert all(value.isfinite().all() for value in algorithm.state_dict().values())


@pytest.mark.parametrize(("weight", "expected", "margin"), [(0.0, 0.15, 0.15), (1.0, math.log(2), 0.05)])
def test_the_discriminator_of_two_domains_ends_up_guessing(weight: float, expected: float, margin: float) -> None:
    """Its loss becomes log 2, as for guessing; without the adversary it separates them. Both learn the classes.

    For seeds 0 to 5, the mean of the last hundred losses was 0.695 to 0.702 with the adversary, 0.07 to 0.17 without.
    """
    algorithm, _ = build(num_domains=2, adversary_weight=weight)
    stepper = AdamStepper(algorithm, OptimizerConfig(learning_rate=3e-3, weight_decay=0))
    noise = torch.Generator().manual_seed(0)
    domains, losses = torch.arange(2).repeat(32), []
    for step in range(1, 601):
        labels = torch.randint(2, (64,), generator=noise)
        inputs = torch.randn(64, 5, generator=noise) * 0.3
        inputs[:, 0] += 2.0 * labels - 1
        inputs[:, 1] += 2.0 * domains - 1
        losses.append(algorithm.update(Batch(inputs, labels, domains, step), stepper)["disc"].item())
    assert abs(sum(losses[-200::2]) / 100 - expected) < margin
    assert (algorithm.predict(inputs).logits.argmax(-1) == labels).double().mean() > 0.95


def test_the_defaults_are_domainbeds() -> None:
    config = dataclasses.asdict(DANN.Config())
    assert config == {
        "adversary_weight": 1.0,
        "gradient_penalty": 0.0,
        "discriminator_steps": 1,
        "discriminator_width": 256,
        "discriminator_depth": 3,
        "discriminator_dropout": 0.0,
        "discriminator_learning_rate": None,
        "momentum": 0.5,
    }
