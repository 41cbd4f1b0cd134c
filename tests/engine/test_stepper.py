"""SAM and SAGM against a transcription of their formulas, and what a stepper must not change."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from messi.algorithms.common.base import Algorithm, Group, LossAlgorithm, Stepper
from messi.core.batch import Batch, LossTerms, Prediction
from messi.engine.stepper import AdamStepper, Flatness, OptimizerConfig

RADIUS, ALPHA, RATE = 0.05, 1e-3, 1e-2


class Network(LossAlgorithm):
    """Two layers with batch statistics between them."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2))
        self.calls = 0

    def loss(self, batch: Batch) -> LossTerms:
        self.calls += 1
        return {"cls": functional.cross_entropy(self.layers(batch.inputs), batch.labels)}

    def predict(self, inputs: Tensor) -> Prediction:
        return Prediction(logits=self.layers(inputs))


def batches(number: int) -> list[Batch]:
    stream = torch.Generator().manual_seed(0)
    return [
        Batch(torch.randn(6, 3, generator=stream), torch.randint(2, (6,), generator=stream), torch.zeros(6))
        for _ in range(number)
    ]


def network() -> Network:
    torch.manual_seed(0)
    return Network()


def gradients(model: Network, batch: Batch) -> list[Tensor]:
    return list(torch.autograd.grad(model.loss(batch)["cls"], list(model.parameters())))


def transcribed(model: Network, batch: Batch, flatness: Flatness) -> list[Tensor]:
    """Return the gradient that Adam is given: g2 for SAM, (g1 + g2) / 2 for SAGM."""
    first = gradients(model, batch)
    norm = torch.cat([g.flatten() for g in first]).norm()
    moved = copy.deepcopy(model)
    with torch.no_grad():
        for parameter, g in zip(moved.parameters(), first, strict=True):
            parameter.add_((RADIUS / norm - (ALPHA if flatness == "sagm" else 0)) * g)
    second = gradients(moved, batch)
    return second if flatness == "sam" else [(a + b) / 2 for a, b in zip(first, second, strict=True)]


@pytest.mark.parametrize("flatness", ["sam", "sagm"])
def test_every_step_follows_the_formula(flatness: Flatness) -> None:
    model, twin = network(), network()
    stepper = AdamStepper(
        model,
        OptimizerConfig(
            learning_rate=RATE, weight_decay=0, flatness=flatness, flatness_radius=RADIUS, sagm_alpha=ALPHA
        ),
    )
    adam = torch.optim.Adam(twin.parameters(), lr=RATE)
    for batch in batches(5):
        terms = model.update(batch, stepper)
        with torch.no_grad():
            expected = copy.deepcopy(twin).loss(batch)["cls"]
        torch.testing.assert_close(terms["cls"], expected)
        for parameter, gradient in zip(twin.parameters(), transcribed(twin, batch, flatness), strict=True):
            parameter.grad = gradient
        adam.step()
        for one, other in zip(model.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("flatness", "calls"), [("none", 1), ("sam", 2), ("sagm", 2)])
def test_batch_statistics_see_a_batch_once(flatness: Flatness, calls: int) -> None:
    model, plain = network(), network()
    (batch,) = batches(1)
    config = OptimizerConfig(learning_rate=RATE, weight_decay=0, flatness=flatness, sagm_alpha=1e-3)
    model.update(batch, AdamStepper(model, config))
    plain.loss(batch)
    assert model.calls == calls
    for one, other in zip(model.buffers(), plain.buffers(), strict=True):
        assert torch.equal(one, other)


def test_a_reset_forgets_the_past() -> None:
    first, second = batches(2)
    model = network()
    stepper = AdamStepper(model, OptimizerConfig(learning_rate=RATE, weight_decay=0))
    model.update(first, stepper)
    fresh = copy.deepcopy(model)
    stepper.reset()
    model.update(second, stepper)
    fresh.update(second, AdamStepper(fresh, OptimizerConfig(learning_rate=RATE, weight_decay=0)))
    assert all(map(torch.equal, model.parameters(), fresh.parameters()))


class TwoGroups(Algorithm):
    """Updates one of two numbers at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.slow, self.quick = nn.Parameter(torch.ones(())), nn.Parameter(torch.ones(()))

    def groups(self) -> dict[str, Group]:
        return {"slow": Group([self.slow]), "quick": Group([self.quick], learning_rate=0.5)}

    def update(self, batch: Batch, stepper: Stepper) -> LossTerms:
        return stepper.descend(lambda: {"cls": self.slow * self.quick}, group="quick" if batch.step % 2 else "slow")

    def predict(self, inputs: Tensor) -> Prediction:
        raise NotImplementedError


def test_a_step_updates_only_its_group_and_with_its_learning_rate() -> None:
    model = TwoGroups()
    stepper = AdamStepper(model, OptimizerConfig(learning_rate=0.1, weight_decay=0))
    for step, expected in ((1, [1.0, 0.5]), (2, [0.9, 0.5])):
        model.update(Batch(torch.zeros(1), torch.zeros(1), torch.zeros(1), step=step), stepper)
        assert [model.slow.item(), model.quick.item()] == pytest.approx(expected)
