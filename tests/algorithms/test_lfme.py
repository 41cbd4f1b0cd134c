"""LFME: experts for one domain each, and the network that they guide."""

import copy
import dataclasses

import pytest
import torch
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from messi.algorithms.common.base import LossAlgorithm
from messi.algorithms.erm import ERM
from messi.algorithms.lfme import LFME
from messi.core.batch import Batch, Task
from messi.engine.stepper import AdamStepper, OptimizerConfig, total
from messi.models.encoder import EncoderConfig

from .tolerance import near


def build(num_domains: int = 3, weight: float = 1.0) -> LFME:
    torch.manual_seed(0)
    task = Task(input_shape=(5,), num_classes=4, num_domains=num_domains)
    return LFME(LFME.Config(guidance_weight=weight), task=task, encoder=EncoderConfig(backbone="mlp"))


def make_batch(domains: list[int], step: int = 1) -> Batch:
    generator = torch.Generator().manual_seed(step)
    inputs = torch.randn(len(domains), 5, generator=generator)
    labels = torch.randint(4, (len(domains),), generator=generator)
    return Batch(inputs=inputs, labels=labels, domains=torch.tensor(domains), step=step)


@pytest.mark.parametrize("domains", [[0, 1, 2] * 4, [2, 0, 0, 2, 2, 0]])
def test_steps_match_separate_networks_with_one_adam_each(domains: list[int]) -> None:
    """An expert whose domain is not in the batch does not change."""
    algorithm = build(weight=0.6)
    twin = copy.deepcopy(algorithm)
    stepper = AdamStepper(algorithm, OptimizerConfig(learning_rate=1e-2, weight_decay=1e-3))
    networks = [twin.network, *twin.experts]
    adams = [torch.optim.Adam(network.parameters(), lr=1e-2, weight_decay=1e-3) for network in networks]
    for step in range(1, 5):
        batch = make_batch(domains, step)
        advice = torch.zeros(len(domains), 4)
        logits = twin.network(batch.inputs)
        loss = functional.cross_entropy(logits, batch.labels)
        for domain in set(domains):
            own = batch.domains == domain
            answer = twin.experts[domain](batch.inputs[own])
            advice[own] = answer.detach().softmax(-1)
            adams[1 + domain].zero_grad()
            functional.cross_entropy(answer, batch.labels[own]).backward()
            adams[1 + domain].step()
        guidance = (logits - advice).square().sum() / (len(domains) * 4)
        adams[0].zero_grad()
        (loss + 0.6 * guidance).backward()
        adams[0].step()
        terms = algorithm.update(batch, stepper)
        near(terms["cls"], loss.detach())
        near(terms["guide"], 0.6 * guidance.detach())
        for mine, theirs in zip(algorithm.parameters(), twin.parameters(), strict=True):
            near(mine, theirs)


def test_an_expert_sees_only_its_own_domain() -> None:
    algorithm, batch = build(), make_batch([0, 1, 2] * 4)
    changed = batch.inputs.clone()
    changed[batch.domains != 1] = torch.nan
    total(algorithm.loss(Batch(changed, batch.labels, batch.domains))).backward()
    finite = [
        all(p.grad is not None and bool(p.grad.isfinite().all()) for p in expert.parameters())
        for expert in algorithm.experts
    ]
    assert finite == [False, True, False]


def test_guidance_by_hand() -> None:
    algorithm, batch = build(num_domains=1, weight=2.0), make_batch([0, 0])
    with torch.no_grad():
        for parameter in algorithm.parameters():
            parameter.zero_()
        algorithm.get_parameter("network.1.bias")[0] = 1
    # The expert gives 1/4 to each of four classes, the logits are 1, 0, 0, 0.
    expected = 2 * ((3 / 4) ** 2 + 3 * (1 / 4) ** 2) / 4
    assert algorithm.loss(batch)["guide"].item() == pytest.approx(expected)


def test_no_gradient_flows_from_the_guidance_to_an_expert() -> None:
    algorithm = build()
    algorithm.loss(make_batch([0, 1, 2]))["guide"].backward()
    assert all(parameter.grad is None for parameter in algorithm.experts.parameters())
    assert all(parameter.grad is not None for parameter in algorithm.network.parameters())


def test_experts_are_part_of_the_state_and_follow_the_mode() -> None:
    algorithm = build()
    assert sum(key.startswith("experts.2.") for key in algorithm.state_dict()) == len(algorithm.network.state_dict())
    algorithm.eval()
    assert not any(module.training for module in algorithm.experts.modules())


def test_a_step_can_be_captured_if_every_batch_contains_every_domain() -> None:
    algorithm = build()
    phases = [algorithm.phase(1)]
    for domains in ([0, 1, 2], [0, 2]):
        algorithm.loss(make_batch(domains))
        phases.append(algorithm.phase(2))
    assert phases == [None, "all", None]


def test_a_step_has_twice_the_arithmetic_of_erm() -> None:
    """Whatever the number of experts: every image passes through the network and the expert of its domain."""
    task = Task(input_shape=(3, 160, 160), num_classes=4, num_domains=3)
    encoder, batch = EncoderConfig(backbone="test_vit", pretrained=False), make_batch([0, 1, 2] * 2)
    batch = dataclasses.replace(batch, inputs=torch.randn(6, 3, 160, 160))

    def operations(algorithm: LossAlgorithm) -> int:
        with FlopCounterMode(display=False) as counter:
            total(algorithm.loss(batch)).backward()
        return int(counter.get_total_flops())

    erm = operations(ERM(ERM.Config(), task=task, encoder=encoder))
    assert erm > 0
    assert operations(LFME(LFME.Config(), task=task, encoder=encoder)) == 2 * erm
