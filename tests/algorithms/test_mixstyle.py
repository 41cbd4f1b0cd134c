"""MixStyle as a method: the contract, on the convolutional encoder that it requires."""

import copy
from pathlib import Path

import pytest
import torch

from messi.algorithms.erm import ERM
from messi.algorithms.mixstyle import MixStyle
from messi.core.batch import Batch, Task
from messi.core.errors import MessiError
from messi.core.rundir import RunDir
from messi.core.seeding import derive_seed
from messi.data.datasets.rotated_colored_mnist import RotatedColoredMNIST
from messi.engine.build import build_run
from messi.engine.config import RunConfig, TrainingConfig
from messi.engine.run import run
from messi.engine.stepper import AdamStepper, OptimizerConfig
from messi.evaluation.model import load
from messi.models.encoder import EncoderConfig

TASK = Task(input_shape=(1, 12, 12), num_classes=2, num_domains=3)
TINY = EncoderConfig(backbone="tiny_cnn")


def build(**settings: float) -> MixStyle:
    torch.manual_seed(0)
    return MixStyle(MixStyle.Config(**settings), task=TASK, encoder=TINY)


def bars(seed: int, *, per_domain: int = 12) -> Batch:
    """Horizontal and vertical bars, brighter from domain to domain."""
    generator = torch.Generator().manual_seed(seed)
    domains = torch.arange(3).repeat_interleave(per_domain)
    labels = torch.randint(2, domains.shape, generator=generator)
    images = 0.1 * torch.randn(len(labels), 1, 12, 12, generator=generator)
    for image, label, place in zip(images, labels, torch.randint(12, labels.shape, generator=generator), strict=True):
        image[0, :, place] += 1.0 - label
        image[0, place, :] += label
    return Batch(inputs=images * (1 + domains).view(-1, 1, 1, 1), labels=labels, domains=domains)


def fit(algorithm: MixStyle, steps: range) -> AdamStepper:
    stepper = AdamStepper(algorithm, OptimizerConfig(learning_rate=3e-3, weight_decay=0))
    algorithm.train()
    for step in steps:
        torch.manual_seed(step)
        algorithm.update(bars(step), stepper)
    return stepper


def test_it_learns_and_moves_every_parameter() -> None:
    algorithm, unseen = build(), bars(1000)
    before = {key: value.clone() for key, value in algorithm.named_parameters()}
    fit(algorithm, range(60))
    assert [key for key, value in algorithm.named_parameters() if torch.equal(value, before[key])] == []
    accuracy = (algorithm.eval().predict(unseen.inputs).logits.argmax(-1) == unseen.labels).double().mean()
    assert accuracy > 0.95


def test_a_prediction_equals_that_of_erm_with_the_same_weights() -> None:
    algorithm, batch = build(probability=1.0).eval(), bars(0)
    plain = ERM(ERM.Config(), task=TASK, encoder=TINY).eval()
    plain.load_state_dict(algorithm.state_dict())
    together = algorithm.predict(batch.inputs).logits
    assert torch.equal(together, plain.predict(batch.inputs).logits)
    alone = torch.cat([algorithm.predict(image[None]).logits for image in batch.inputs])
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-6)


def test_without_mixing_it_equals_erm_and_with_mixing_it_does_not() -> None:
    batch = bars(0)
    plain = ERM(ERM.Config(), task=TASK, encoder=TINY)
    for probability, same in ((0.0, True), (1.0, False)):
        algorithm = build(probability=probability)
        plain.load_state_dict(algorithm.state_dict())
        assert torch.equal(algorithm.loss(batch)["cls"], plain.loss(batch)["cls"]) == same


def test_a_second_object_with_its_state_continues_to_the_same_bits() -> None:
    first = build()
    stepper = fit(first, range(4))
    second = build()
    second.load_state_dict(first.state_dict())
    other = AdamStepper(second, OptimizerConfig(learning_rate=3e-3, weight_decay=0))
    other.optimizers["main"].load_state_dict(copy.deepcopy(stepper.optimizers["main"].state_dict()))
    for algorithm, its_stepper in ((first, stepper), (second, other)):
        for step in range(4, 7):
            torch.manual_seed(step)
            algorithm.update(bars(step), its_stepper)
    assert all(torch.equal(second.state_dict()[key], value) for key, value in first.state_dict().items())


@pytest.mark.parametrize("backbone", ["mlp", "identity"])
def test_an_encoder_without_feature_maps_is_refused(backbone: str) -> None:
    with pytest.raises(MessiError, match="feature maps"):
        MixStyle(MixStyle.Config(), task=TASK, encoder=EncoderConfig(backbone=backbone))


def test_the_defaults_are_those_of_the_swad_code() -> None:
    assert (MixStyle.Config().probability, MixStyle.Config().alpha) == (0.5, 0.1)


def test_a_saved_run_predicts_like_the_model_in_memory(tmp_path: Path) -> None:
    config = RunConfig(
        data=RotatedColoredMNIST(environments=6, num_sources=3, budget=300),
        algorithm=MixStyle.Config(),
        encoder=TINY,
        training=TrainingConfig(steps=4, evaluate_every=4, batch_per_domain=8),
    )
    result = run(config, out=tmp_path / "run", device="cpu")
    resolved = config.resolved()
    examples = resolved.data.load()
    parts = build_run(resolved, examples, RunDir(tmp_path / "unused"), torch.device("cpu"))
    for step in range(1, 5):
        torch.manual_seed(derive_seed("step", resolved.seed, step))
        parts.algorithm.update(parts.loader.batch(step), parts.stepper)
    saved = load(result.path).algorithm.state_dict()
    assert all(torch.equal(saved[key], value) for key, value in parts.algorithm.state_dict().items())
