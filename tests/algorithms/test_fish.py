"""Fish step by step: the steps of the copy, how far the network follows, and the state of Adam."""

import copy

import pytest
import torch
from torch.nn import functional

from messi.algorithms.fish import Fish
from messi.core.batch import Batch, Task
from messi.core.errors import MessiError
from messi.engine.stepper import AdamStepper, OptimizerConfig
from messi.models.encoder import EncoderConfig

from .tolerance import near


def build(num_domains: int = 3, share: float = 0.5) -> Fish:
    torch.manual_seed(0)
    task = Task(input_shape=(5,), num_classes=2, num_domains=num_domains)
    return Fish(Fish.Config(meta_learning_rate=share), task=task, encoder=EncoderConfig(backbone="mlp"))


def make_batch(domains: list[int], step: int = 1) -> Batch:
    generator = torch.Generator().manual_seed(step)
    inputs = torch.randn(len(domains), 5, generator=generator)
    labels = torch.randint(2, (len(domains),), generator=generator)
    return Batch(inputs=inputs, labels=labels, domains=torch.tensor(domains), step=step)


@pytest.mark.parametrize("domains", [[0, 1, 2, 2, 1, 0], [4, 9, 9, 4], [0, 0, 0]])
def test_steps_match_a_direct_transcription(domains: list[int]) -> None:
    """The copy starts at the network and takes one step of one Adam per domain; the network moves half of the way."""
    algorithm = build(num_domains=10)
    stepper = AdamStepper(algorithm, OptimizerConfig(learning_rate=1e-2, weight_decay=1e-3))
    outer, inner = copy.deepcopy(algorithm.network), copy.deepcopy(algorithm.network)
    adam = torch.optim.Adam(inner.parameters(), lr=1e-2, weight_decay=1e-3)
    present = sorted(set(domains))
    for step in range(1, 5):
        batch = make_batch(domains, step)
        inner.load_state_dict(outer.state_dict())
        torch.manual_seed(step)
        risks = []
        for place in torch.rand(len(present)).argsort().tolist():
            own = batch.domains == present[place]
            risk = functional.cross_entropy(inner(batch.inputs[own]), batch.labels[own])
            adam.zero_grad()
            risk.backward()
            adam.step()
            risks.append(risk.item())
        with torch.no_grad():
            for mine, theirs in zip(outer.parameters(), inner.parameters(), strict=True):
                mine.add_(0.5 * (theirs - mine))
        torch.manual_seed(step)
        terms = algorithm.update(batch, stepper)
        assert terms["cls"].item() == pytest.approx(sum(risks) / len(risks), rel=1e-4)
        for found, wanted in zip(algorithm.network.parameters(), outer.parameters(), strict=True):
            near(found, wanted)


def test_with_share_one_and_one_domain_it_is_adam() -> None:
    algorithm = build(num_domains=1, share=1.0)
    stepper = AdamStepper(algorithm, OptimizerConfig(learning_rate=1e-2, weight_decay=0))
    twin = copy.deepcopy(algorithm.network)
    adam = torch.optim.Adam(twin.parameters(), lr=1e-2)
    for step in range(1, 5):
        batch = make_batch([0] * 6, step)
        adam.zero_grad()
        functional.cross_entropy(twin(batch.inputs), batch.labels).backward()
        adam.step()
        algorithm.update(batch, stepper)
    for found, wanted in zip(algorithm.network.parameters(), twin.parameters(), strict=True):
        near(found, wanted)


def test_the_order_of_the_domains_is_drawn() -> None:
    ends = []
    for seed in range(8):
        algorithm = build()
        torch.manual_seed(seed)
        algorithm.update(
            make_batch([0, 1, 2] * 4), AdamStepper(algorithm, OptimizerConfig(learning_rate=1e-2, weight_decay=0))
        )
        ends.append(algorithm.network.state_dict()["1.weight"].flatten())
    assert len(torch.stack(ends).unique(dim=0)) > 1


def test_it_predicts_with_the_network_not_with_the_copy() -> None:
    algorithm, batch = build(), make_batch([0, 1, 2])
    algorithm.update(batch, AdamStepper(algorithm, OptimizerConfig(learning_rate=1e-1, weight_decay=0)))
    logits = algorithm.predict(batch.inputs).logits
    assert torch.equal(logits, algorithm.network(batch.inputs))
    assert not torch.allclose(logits, algorithm.inner(batch.inputs))


def test_domains_of_unequal_size_are_refused() -> None:
    algorithm = build()
    with pytest.raises(MessiError, match="same number of examples"):
        algorithm.update(
            make_batch([0, 0, 1]), AdamStepper(algorithm, OptimizerConfig(learning_rate=1e-2, weight_decay=0))
        )
