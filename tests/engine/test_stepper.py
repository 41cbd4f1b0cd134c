"""SAM and SAGM against a transcription of their formulas, layer decay and probing, and what must not change."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from messi.algorithms.common.base import Algorithm, Group, LossAlgorithm, Stepper
from messi.algorithms.common.inference import evaluating
from messi.algorithms.dann import DANN
from messi.algorithms.erm import ERM
from messi.algorithms.irm import IRM
from messi.core.batch import Batch, LossTerms, Prediction, Task
from messi.core.errors import MessiError
from messi.engine.capture import Updater
from messi.engine.stepper import AdamStepper, Flatness, OptimizerConfig
from messi.models.encoder import EncoderConfig

RADIUS, ALPHA, RATE = 0.05, 1e-3, 1e-2


class Network(LossAlgorithm):
    """Two layers with batch statistics between them.

    The first has no bias: BatchNorm removes it, so its gradient is rounding error, which Adam would turn into steps.
    """

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 4, bias=False), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2))
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


TASK = Task(input_shape=(3, 32, 32), num_classes=4, num_domains=2)


def images(step: int) -> Batch:
    stream = torch.Generator().manual_seed(step)
    inputs = torch.randn(8, 3, 32, 32, generator=stream)
    return Batch(inputs, torch.randint(4, (8,), generator=stream), torch.arange(8) % 2, step=step)


def on_images(kind: type[ERM], backbone: str = "tiny_cnn", **settings: float) -> ERM:
    torch.manual_seed(0)
    encoder = EncoderConfig(backbone=backbone, pretrained=False)
    return kind(kind.Config(**settings), task=TASK, encoder=encoder)


def copies(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def changed(module: nn.Module, before: dict[str, Tensor]) -> set[str]:
    return {name for name, tensor in module.state_dict().items() if not torch.equal(tensor, before[name])}


def test_the_first_step_moves_every_parameter_by_its_own_learning_rate_and_weight_decay() -> None:
    """The first step of Adam is -rate g / (|g| + 1e-8), where g includes the weight decay."""
    model = on_images(DANN, momentum=0.0, discriminator_learning_rate=0.25)
    config = OptimizerConfig(learning_rate=0.1, weight_decay=0.5, head_weight_decay=0.75, layer_decay=0.5)
    stepper, before = AdamStepper(model, config), copies(model)
    gradients: dict[str, Tensor] = {}
    for step in (2, 1):  # one of encoder and classifier, which also gives the discriminator a gradient, and one of it
        model.update(images(step), stepper)
        gradients |= {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    layers = {"encoder.network.0": 3, "encoder.network.2": 3, "encoder.network.3": 2, "encoder.network.5": 2}
    layers |= {"encoder.network.6": 1, "encoder.network.8": 1}
    for name, parameter in model.named_parameters():
        module = name.rpartition(".")[0]
        rate = 0.25 if name.startswith("discriminator") else 0.1 * 0.5 ** layers.get(module, 0)
        gradient = gradients[name] + (0.5 if module in layers else 0.75) * before[name]
        moved = before[name] - rate * gradient / (gradient.abs() + 1e-8)
        assert torch.allclose(parameter, moved, rtol=1e-5, atol=1e-7), name


def test_without_these_options_adam_has_one_group_in_the_order_of_the_parameters() -> None:
    """The checkpoint numbers the parameters in this order."""
    model = on_images(ERM)
    (group,) = AdamStepper(model, OptimizerConfig(learning_rate=0.1, weight_decay=0.5)).optimizers["main"].param_groups
    assert all(one is other for one, other in zip(group["params"], model.parameters(), strict=True))


@pytest.mark.parametrize("flatness", ["none", "sam"])
def test_a_probe_trains_the_head_only_and_full_training_starts_with_a_new_optimizer(flatness: Flatness) -> None:
    model = on_images(ERM, "resnet10t")
    config = OptimizerConfig(
        learning_rate=1e-3, weight_decay=0.1, probe_steps=3, probe_learning_rate=0.25, flatness=flatness
    )
    stepper = AdamStepper(model, config)
    update, start = Updater(model, stepper, torch.device("cpu")), copies(model)
    for step in (1, 2, 3):
        update(images(step))
        if step == 1:
            moved = (model.classifier.weight - start["classifier.weight"]).abs()
            assert moved.max().item() == pytest.approx(0.25, rel=1e-3)
        assert all(parameter.grad is None for parameter in model.encoder.parameters())
        with evaluating(model):  # as after some steps of a run
            model.predict(images(step).inputs)
        assert not any(module.training for module in model.encoder.modules())
        assert changed(model, start) == {"classifier.weight", "classifier.bias"}
    twin = on_images(ERM, "resnet10t")
    twin.load_state_dict(model.state_dict())
    plain = OptimizerConfig(learning_rate=1e-3, weight_decay=0.1, flatness=flatness)
    after = Updater(twin, AdamStepper(twin, plain), torch.device("cpu"))
    for step in (4, 5):
        update(images(step))
        after(images(step))
    assert changed(model, start) == set(start), "including the running statistics of every BatchNorm"
    assert changed(model, twin.state_dict()) == set()


def test_the_resets_of_a_method_are_counted_from_the_first_step_of_the_probe() -> None:
    model = on_images(IRM, anneal_steps=3)
    stepper = AdamStepper(model, OptimizerConfig(learning_rate=1e-3, weight_decay=0, probe_steps=1))
    update = Updater(model, stepper, torch.device("cpu"))
    counts = []
    for step in range(1, 6):
        update(images(step))
        counts.append({int(state["step"]) for state in stepper.optimizers["main"].state.values()})
    assert counts == [{1}, {1}, {2}, {1}, {2}]


def test_a_method_without_parameters_outside_the_encoder_cannot_be_probed() -> None:
    model = on_images(ERM)
    model.classifier = nn.Identity()  # type: ignore[assignment]
    with pytest.raises(MessiError, match=r"^probe_steps requires .* but ERM has none; omit --probe-steps\.$"):
        AdamStepper(model, OptimizerConfig(learning_rate=1e-3, weight_decay=0, probe_steps=1))
