"""MLDG step by step: the meta-test domains, the trial step, and the gradient that the network descends."""

import copy
from typing import Any

import pytest
import torch
from torch.nn import functional

from messi.algorithms.erm import ERM
from messi.algorithms.mldg import MLDG, with_gradient
from messi.core.batch import Batch, Task
from messi.engine.stepper import AdamStepper, OptimizerConfig
from messi.models.encoder import EncoderConfig

from .tolerance import near


def task(num_domains: int) -> Task:
    return Task(input_shape=(5,), num_classes=2, num_domains=num_domains)


def build(num_domains: int = 4, **settings: Any) -> MLDG:
    torch.manual_seed(0)
    return MLDG(MLDG.Config(**settings), task=task(num_domains), encoder=EncoderConfig(backbone="mlp"))


def make_batch(domains: list[int], step: int = 1) -> Batch:
    generator = torch.Generator().manual_seed(step)
    inputs = torch.randn(len(domains), 5, generator=generator)
    labels = torch.randint(2, (len(domains),), generator=generator)
    return Batch(inputs=inputs, labels=labels, domains=torch.tensor(domains), step=step)


@pytest.mark.parametrize(
    ("domains", "wanted", "held_out"),
    [
        ([0, 1, 2, 3] * 3, 2, 2),
        ([0, 1, 2, 3] * 3, 1, 1),
        ([3, 1, 1, 3, 1, 3], 2, 1),  # at least one domain is used for the step
        ([2, 1, 0], 5, 2),
    ],
)
def test_steps_match_a_direct_transcription(domains: list[int], wanted: int, held_out: int) -> None:
    """A new Adam takes the trial step, as in DomainBed's code; the gradients before and after it are added."""
    rate, decay, beta = 2e-2, 1e-3, 0.7
    algorithm = build(meta_weight=beta, meta_test_domains=wanted)
    stepper = AdamStepper(algorithm, OptimizerConfig(learning_rate=rate, weight_decay=decay))
    network = copy.deepcopy(algorithm.network)
    adam = torch.optim.Adam(network.parameters(), lr=rate, weight_decay=decay)
    present = sorted(set(domains))
    for step in range(1, 5):
        batch = make_batch(domains, step)
        torch.manual_seed(step)
        order = [present[place] for place in torch.rand(len(present)).argsort().tolist()]
        parts = []
        for some in (order[held_out:], order[:held_out]):
            own = torch.tensor([domain in some for domain in domains])
            parts.append((batch.inputs[own], batch.labels[own]))
        (inputs, labels), (test_inputs, test_labels) = parts
        trial = copy.deepcopy(network)
        new = torch.optim.Adam(trial.parameters(), lr=rate, weight_decay=decay)
        risk = functional.cross_entropy(trial(inputs), labels)
        before = torch.autograd.grad(risk, list(trial.parameters()))
        for parameter, gradient in zip(trial.parameters(), before, strict=True):
            parameter.grad = gradient
        new.step()
        risk_after = functional.cross_entropy(trial(test_inputs), test_labels)
        after = torch.autograd.grad(risk_after, list(trial.parameters()))
        for parameter, first, second in zip(network.parameters(), before, after, strict=True):
            parameter.grad = first + beta * second
        adam.step()
        torch.manual_seed(step)
        terms = algorithm.update(batch, stepper)
        near(terms["cls"], risk.detach())
        near(terms["meta"], beta * risk_after.detach())
        for found, expected in zip(algorithm.network.parameters(), network.parameters(), strict=True):
            near(found, expected)


def test_with_one_domain_it_is_erm() -> None:
    algorithm = build(num_domains=1)
    torch.manual_seed(0)
    erm = ERM(ERM.Config(), task=task(1), encoder=EncoderConfig(backbone="mlp"))
    steppers = [
        AdamStepper(method, OptimizerConfig(learning_rate=1e-2, weight_decay=1e-3)) for method in (algorithm, erm)
    ]
    for step in range(1, 4):
        batch = make_batch([0] * 6, step)
        terms, others = algorithm.update(batch, steppers[0]), erm.update(batch, steppers[1])
        assert terms["meta"] == 0
        torch.testing.assert_close(terms["cls"], others["cls"])
    torch.testing.assert_close(algorithm.predict(batch.inputs).logits, erm.predict(batch.inputs).logits)


def test_the_config_sets_the_length_of_the_trial_step() -> None:
    algorithm = build(inner_learning_rate=0.125)
    batch, stepper = (
        make_batch([0, 1, 2, 3] * 3),
        AdamStepper(algorithm, OptimizerConfig(learning_rate=1e-3, weight_decay=0)),
    )
    before = copy.deepcopy(algorithm.network.state_dict())
    algorithm.update(batch, stepper)
    way = (algorithm.inner.state_dict()["1.bias"] - before["1.bias"]).abs()
    torch.testing.assert_close(way, torch.full((2,), 0.125), rtol=1e-4, atol=0)


def test_the_meta_test_domains_are_drawn_at_random() -> None:
    algorithm, batch = build(), make_batch([0, 1, 2, 3] * 3)
    stepper = AdamStepper(algorithm, OptimizerConfig(learning_rate=1e-9, weight_decay=0))
    risks = {round(algorithm.update(batch, stepper)["cls"].item(), 4) for _ in range(20)}
    assert 3 <= len(risks) <= 6  # the pairs of four domains


def test_the_copy_keeps_no_state() -> None:
    """The step does not depend on the earlier state of the copy."""
    ends = []
    for noise in (0.0, 1.0):
        algorithm = build()
        with torch.no_grad():
            for parameter in algorithm.inner.parameters():
                parameter.add_(noise)
        torch.manual_seed(1)
        algorithm.update(
            make_batch([0, 1, 2, 3]), AdamStepper(algorithm, OptimizerConfig(learning_rate=1e-2, weight_decay=0))
        )
        ends.append(algorithm.network.state_dict()["1.weight"])
    assert torch.equal(*ends)


def test_a_given_value_and_gradient_are_added_to_an_ordinary_loss() -> None:
    first, second = torch.ones(2, requires_grad=True), torch.ones(3, requires_grad=True)
    given = [torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0, 5.0])]
    loss = with_gradient(torch.tensor(7.0), [first, second], given)
    assert loss.item() == 7
    (2 * loss + first.sum()).backward()
    assert first.grad is not None
    assert second.grad is not None
    assert first.grad.tolist() == [3.0, 5.0]
    assert second.grad.tolist() == [6.0, 8.0, 10.0]


def test_no_gradient_flows_back_through_the_given_value() -> None:
    source, parameter = torch.ones((), requires_grad=True), torch.ones(2, requires_grad=True)
    with_gradient(3 * source, [parameter], [torch.zeros(2)]).backward()
    assert source.grad is None
