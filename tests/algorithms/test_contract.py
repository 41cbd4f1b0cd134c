"""The contract of every method; a new file in ``algorithms/`` is found automatically."""

import copy
import dataclasses
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from messi.algorithms.common.base import ALGORITHMS, Algorithm, build
from messi.core import split_by_domain
from messi.core.batch import Batch, Task
from messi.core.rundir import RunDir
from messi.core.seeding import derive_seed, deterministic
from messi.data.datasets.two_subsets import TwoSubsets
from messi.engine.build import build_run
from messi.engine.capture import Updater
from messi.engine.config import RunConfig, TrainingConfig
from messi.engine.run import run
from messi.engine.stepper import AdamStepper, OptimizerConfig, total
from messi.evaluation.model import load
from messi.models.encoder import Encoder, EncoderConfig

from .capturable import BackwardOnly, ForbidValueReads

# A smaller size is faster on a CPU; on a GPU, resampled positions have no deterministic gradient.
_VIT = ("test_vit", (3, 160, 160) if torch.cuda.is_available() else (3, 48, 48))
IMAGES = {"mixstyle": ("tiny_cnn", (1, 5, 5)), "gmoe": _VIT, "omoe": _VIT, "dynmoe": _VIT}
"""Methods that require images: the smallest suitable backbone and the shape; all others are tested on features."""
READS_VALUES_ON_A_CPU = {"messi": "its slots are found in torch there, and by kernels on a GPU"}
NAMES = pytest.mark.parametrize("name", ALGORITHMS.names())
ON_FEATURES = pytest.mark.parametrize("name", [name for name in ALGORITHMS.names() if name not in IMAGES])
ORDER_MATTERS = {
    "irm": "its penalty multiplies the gradients of two halves of a domain",
    "mixup": "partners go by their rank in the batch",
    "mixstyle": "styles are exchanged by a permutation of places",
    "gmoe": "its router is given noise by place",
    "omoe": "its router is given noise by place",
}


def make(
    name: str, *, num_domains: int = 3, num_classes: int = 2, on: tuple[str, tuple[int, ...]] = ("mlp", (5,))
) -> Algorithm:
    torch.manual_seed(0)
    backbone, shape = IMAGES.get(name, on)
    task = Task(input_shape=shape, num_classes=num_classes, num_domains=num_domains)
    return build(ALGORITHMS.config(name)(), task=task, encoder=EncoderConfig(backbone=backbone, pretrained=False))


def separable(name: str, seed: int, *, num_domains: int = 3, per_domain: int = 16) -> Batch:
    """Two classes on either side of a plane, slightly shifted in every domain; for images, vertical stripes."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(2, (num_domains * per_domain,), generator=generator)
    domains = torch.arange(num_domains).repeat_interleave(per_domain)
    inputs = torch.randn(len(labels), 5, generator=generator) * 0.3
    inputs[:, 0] += 2.0 * labels - 1
    inputs[:, 1] += 0.3 * domains
    if name in IMAGES:
        channels, *size = IMAGES[name][1]
        inputs = functional.interpolate(inputs[:, None, None, :], size).expand(-1, channels, -1, -1)
    return Batch(inputs=inputs, labels=labels, domains=domains, step=seed)


def fit(name: str, algorithm: Algorithm, steps: int = 60, *, num_domains: int = 3) -> AdamStepper:
    stepper = AdamStepper(algorithm, OptimizerConfig(learning_rate=3e-3, weight_decay=0))
    algorithm.train()
    for step in range(1, steps + 1):
        torch.manual_seed(step)
        algorithm.update(separable(name, step, num_domains=num_domains), stepper)
    return stepper


@NAMES
def test_it_learns_a_separable_problem(name: str) -> None:
    algorithm, unseen = make(name), separable(name, 1000)
    fit(name, algorithm)
    accuracy = (algorithm.eval().predict(unseen.inputs).logits.argmax(-1) == unseen.labels).double().mean()
    assert accuracy > 0.95


@NAMES
def test_its_terms_are_finite_scalar_tensors(name: str) -> None:
    algorithm = make(name)
    terms = algorithm.update(
        separable(name, 1), AdamStepper(algorithm, OptimizerConfig(learning_rate=1e-3, weight_decay=0))
    )
    assert all(term.dim() == 0 and term.isfinite() for term in terms.values())
    assert total(terms).item() == pytest.approx(sum(term.item() for term in terms.values()))


@NAMES
def test_every_parameter_gets_a_gradient_and_moves(name: str) -> None:
    algorithm = make(name)
    before = {key: value.clone() for key, value in algorithm.named_parameters()}
    fit(name, algorithm, steps=3)
    assert [key for key, value in algorithm.named_parameters() if torch.equal(value, before[key])] == []


@NAMES
def test_its_state_contains_everything_that_training_changes(name: str) -> None:
    """A second object with the state and optimizer of the first continues exactly like the first."""
    first = make(name)
    stepper = fit(name, first, steps=5)
    second = make(name)
    second.load_state_dict(first.state_dict())
    other = AdamStepper(second, OptimizerConfig(learning_rate=3e-3, weight_decay=0))
    for group, optimizer in stepper.optimizers.items():
        other.optimizers[group].load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for algorithm, its_stepper in ((first, stepper), (second, other)):
        for step in range(6, 9):
            torch.manual_seed(step)
            algorithm.update(separable(name, step), its_stepper)
    assert all(torch.equal(second.state_dict()[key], value) for key, value in first.state_dict().items())


@NAMES
def test_the_same_seed_gives_the_same_bits(name: str) -> None:
    states = []
    for _ in range(2):
        algorithm = make(name)
        fit(name, algorithm, steps=4)
        states.append(algorithm.state_dict())
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])


@NAMES
def test_a_prediction_does_not_depend_on_the_rest_of_the_batch(name: str) -> None:
    algorithm, batch = make(name).eval(), separable(name, 0)
    together = algorithm.predict(batch.inputs)
    alone = [algorithm.predict(row[None]) for row in batch.inputs]
    torch.testing.assert_close(together.logits, torch.cat([one.logits for one in alone]), rtol=1e-5, atol=1e-6)
    if together.routing is not None:
        torch.testing.assert_close(together.routing.sum(-1), torch.ones(len(batch)))


@pytest.mark.parametrize("name", [name for name in ALGORITHMS.names() if name not in ORDER_MATTERS])
def test_the_order_of_the_batch_does_not_matter(name: str) -> None:
    batch = separable(name, 1)
    order = torch.randperm(len(batch), generator=torch.Generator().manual_seed(0))
    shuffled = Batch(inputs=batch.inputs[order], labels=batch.labels[order], domains=batch.domains[order], step=1)
    losses = []
    for one in (batch, shuffled):
        algorithm = make(name)
        torch.manual_seed(0)
        losses.append(
            total(algorithm.update(one, AdamStepper(algorithm, OptimizerConfig(learning_rate=1e-3, weight_decay=0))))
        )
    torch.testing.assert_close(losses[0], losses[1], rtol=1e-5, atol=1e-6)


@NAMES
@pytest.mark.parametrize("num_domains", [1, 2, 20])
def test_it_works_with_any_number_of_domains(name: str, num_domains: int) -> None:
    algorithm = make(name, num_domains=num_domains)
    before = copy.deepcopy(algorithm.state_dict())
    fit(name, algorithm, steps=3, num_domains=num_domains)
    assert all(value.isfinite().all() for value in algorithm.state_dict().values())
    assert not all(torch.equal(value, before[key]) for key, value in algorithm.state_dict().items())


@NAMES
def test_a_probe_trains_everything_outside_the_encoder_and_nothing_inside(name: str) -> None:
    """DANN trains discriminator and classifier alternately, so each of the two parts has two steps."""
    algorithm = make(name, on=IMAGES["mixstyle"])
    inside = {key for path, part in algorithm.named_modules() if isinstance(part, Encoder) for key in keys(path, part)}
    config = OptimizerConfig(learning_rate=1e-3, weight_decay=0.1, probe_steps=2, layer_decay=0.7)
    update = Updater(algorithm, AdamStepper(algorithm, config), torch.device("cpu"))
    states = []
    for step in range(5):
        if step:
            torch.manual_seed(step)
            update(separable(name if name in IMAGES else "mixstyle", step))
        states.append({key: value.clone() for key, value in algorithm.state_dict().items()})
    parameters = {key for key, _ in algorithm.named_parameters()}
    moved = {(a, b): {k for k in states[0] if not torch.equal(states[a][k], states[b][k])} for a, b in ((0, 2), (2, 4))}
    assert moved[0, 2] & inside == set(), "no weight and no buffer"
    assert moved[0, 2] >= parameters - inside
    assert moved[2, 4] >= parameters


def keys(path: str, module: torch.nn.Module) -> list[str]:
    return [f"{path}.{key}" for key in module.state_dict()]


@pytest.mark.parametrize("step", [1, 2, 2000])
@pytest.mark.parametrize("name", [name for name in ALGORITHMS.names() if name not in READS_VALUES_ON_A_CPU])
def test_a_step_that_may_be_captured_reads_no_value(name: str, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """``SplitByDomain`` reads the number of domains once, before any step is captured."""
    monkeypatch.setattr(split_by_domain, "_number", lambda _: 3)
    algorithm = make(name)
    with ForbidValueReads():
        algorithm.update(dataclasses.replace(separable(name, 1), step=step), BackwardOnly())
    assert algorithm.phase(step) is not None


@NAMES
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_captured_and_eager_steps_give_the_same_bits(name: str) -> None:
    states = []
    for capture in (False, True):
        algorithm, device = make(name).cuda(), torch.device("cuda")
        update = Updater(
            algorithm,
            AdamStepper(algorithm, OptimizerConfig(learning_rate=1e-3, weight_decay=1e-4)),
            device,
            capture=capture,
        )
        with deterministic():
            for step in range(1, 13):
                torch.manual_seed(step)
                batch = separable(name, step)
                update(Batch(batch.inputs.cuda(), batch.labels.cuda(), batch.domains.cuda(), step=step))
        assert update.captured is capture
        states.append(algorithm.state_dict())
    assert all(torch.equal(states[1][key], value) for key, value in states[0].items())


@ON_FEATURES
def test_a_saved_run_predicts_like_the_model_in_memory(name: str, tmp_path: Path) -> None:
    config = RunConfig(
        data=TwoSubsets(per_domain=40),
        algorithm=ALGORITHMS.config(name)(),
        training=TrainingConfig(steps=4, evaluate_every=4, batch_per_domain=8),
    )
    result = run(config, out=tmp_path / "run", device="cpu")
    resolved = config.resolved()
    examples = resolved.data.load()
    parts = build_run(resolved, examples, RunDir(tmp_path / "unused"), torch.device("cpu"))
    for step in range(1, 5):
        torch.manual_seed(derive_seed("step", config.seed, step))
        parts.algorithm.update(parts.loader.batch(step), parts.stepper)
    expected = parts.algorithm.eval().predict(torch.stack(list(examples.inputs))).logits.softmax(-1)
    torch.testing.assert_close(load(result.path).predict(examples.inputs).probabilities, expected)
