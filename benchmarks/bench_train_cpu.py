"""Training and prediction on two CPU cores: messi against DomainBed's code and against timm, in one run.

    python benchmarks/bench_train_cpu.py --domainbed FOLDER [--turns N] [--save]

``FOLDER`` is a checkout of github.com/facebookresearch/DomainBed. The small CNN trains on 9 x 32 images of
Rotated-Colored MNIST; DomainBed's ``ERM`` and ``CORAL`` update the same network, in a process of their own as their
users start it, and in this process, which has messi's settings of memory and threads. DeiT-Ti/16 trains on 3 x 8
augmented images; the other side is timm's network with torch's Adam, in this process. messi's steps include its input
pipeline, the others get tensors that are ready. Predictions of DeiT-Ti/16 are those of 64 stored images, resizing
included.

First, results are compared: from the same weights, the losses of three steps on the same batches in float32, and those
in bfloat16 within a bound; likewise the logits of predictions. Then the sides take turns; a time is a median.
bfloat16 is timed only on a CPU that has it.
"""

import argparse
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")  # as the command line does

import timm
import torch
from torch import Tensor, nn
from torch.nn import functional

from bench_input_cpu import make_jpegs
from bench_ssi_cpu import cpu_model
from harness import show
from messi.algorithms.common.base import AlgorithmConfig
from messi.algorithms.coral import CORAL
from messi.algorithms.erm import ERM
from messi.algorithms.messi import MESSI
from messi.cli.main import keep_freed_memory
from messi.core.batch import Batch
from messi.core.hardware import hardware_of
from messi.core.precision import StatedPrecision
from messi.core.rundir import RunDir
from messi.core.seeding import deterministic
from messi.data.datasets.folder import Folder
from messi.data.datasets.rotated_colored_mnist import RotatedColoredMNIST
from messi.engine.build import build_run
from messi.engine.capture import Updater
from messi.engine.config import RunConfig, TrainingConfig
from messi.engine.loop import RunParts
from messi.engine.stepper import total
from messi.evaluation.predict import predict
from messi.models.encoder import EncoderConfig

CPU, THREADS, COMPARED = torch.device("cpu"), 2, 3
DEIT, IMAGES = "deit_tiny_patch16_224", 64
LOSS_ERROR: dict[StatedPrecision, float] = {"float32": 1e-3, "bfloat16": 0.05}
"""Of the third step's loss, relative: two steps of Adam, whose first ones depend on the signs of gradients only."""
FIRST_LOSS_ERROR: dict[StatedPrecision, float] = {"float32": 1e-5, "bfloat16": 0.01}
LOGIT_ERROR: dict[StatedPrecision, float] = {"float32": 1e-5, "bfloat16": 0.03}
Weights = Mapping[str, Tensor]


@dataclass(frozen=True)
class Side:
    """A row of the table: what is timed, and what it is compared with."""

    name: str
    step: Callable[[int], float]
    """Takes a training step and returns its loss, or predicts and returns anything."""


class Messi:
    """Steps of a run, with its input pipeline."""

    def __init__(self, config: RunConfig) -> None:
        config = config.resolved()
        self.parts: RunParts = build_run(config, config.data.load(), RunDir(Path("none")), CPU)
        self.parts.algorithm.train()
        self._update = Updater(self.parts.algorithm, self.parts.stepper, CPU)

    def step(self, number: int) -> float:
        """Take a step and return its loss."""
        return float(total(self._update(self.parts.loader.batch(number))))

    def batches(self) -> list[Batch]:
        """Return the batches that are compared."""
        return [self.parts.loader.batch(number) for number in range(1, COMPARED + 1)]

    @property
    def weights(self) -> Weights:
        """A copy of the weights."""
        return {name: tensor.clone() for name, tensor in self.parts.algorithm.state_dict().items()}


class DomainBed:
    """DomainBed's own class for a method, on batches that are ready."""

    def __init__(self, folder: Path, method: str, config: RunConfig, batches: list[Batch], weights: Weights) -> None:
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
        from domainbed import algorithms  # type: ignore[import-not-found]  # noqa: PLC0415 (a user's checkout)

        training = config.resolved().training
        settings = {"lr": training.learning_rate, "weight_decay": training.weight_decay, "nonlinear_classifier": False}
        self._penalty = getattr(config.algorithm, "gamma", 0.0)
        inputs, domains = batches[0].inputs, len(batches[0].domains.unique())
        self._method: Any = getattr(algorithms, method)(
            tuple(inputs.shape[1:]), 2, domains, {**settings, "mmd_gamma": self._penalty}
        )
        self._load(weights)
        self._batches = [
            [(one.inputs[one.domains == domain], one.labels[one.domains == domain]) for domain in range(domains)]
            for one in batches
        ]

    def _load(self, weights: Weights) -> None:
        """Copy messi's weights: ``small_cnn`` is the same network under other names."""
        layers = self._method.featurizer
        for place in range(4):
            convolution, norm = getattr(layers, f"conv{place + 1}"), getattr(layers, f"bn{place}")
            for layer, number in ((convolution, 3 * place), (norm, 3 * place + 2)):
                layer.load_state_dict(
                    {name: weights[f"encoder.network.{number}.{name}"] for name in ("weight", "bias")}
                )
        self._method.classifier.load_state_dict({name: weights[f"classifier.{name}"] for name in ("weight", "bias")})

    def step(self, number: int) -> float:
        """Take a step on one of the batches and return its loss."""
        terms = self._method.update(self._batches[(number - 1) % COMPARED])
        return float(terms["loss"] + self._penalty * terms.get("penalty", 0.0))


class Apart:
    """A side in a process of its own, without messi's settings."""

    def __init__(self, *arguments: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        spin_count = os.environ.pop("GOMP_SPINCOUNT")  # read once, when the process started
        context.Process(target=answer_steps, args=(theirs, *arguments), daemon=True).start()
        os.environ["GOMP_SPINCOUNT"] = spin_count

    def step(self, number: int) -> float:
        """Let the process take a step, and return its loss."""
        self._connection.send(number)
        return float(self._connection.recv())


def answer_steps(connection: Connection, *arguments: Any) -> None:
    """Take a step of DomainBed for every number received."""
    torch.set_num_threads(THREADS)
    side = DomainBed(*arguments)
    with suppress(EOFError):  # the benchmark has ended
        while True:
            connection.send(side.step(connection.recv()))


class Timm:
    """timm's network in float32 with torch's Adam, on batches that are ready."""

    def __init__(self, config: RunConfig, batches: list[Batch], weights: Weights) -> None:
        training = config.resolved().training
        self.network = timm.create_model(DEIT, num_classes=3)
        names = {"encoder.network.": "", "classifier.": "head."}
        renamed = {
            name.replace(old, new): w for name, w in weights.items() for old, new in names.items() if old in name
        }
        self.network.load_state_dict(renamed)
        self._adam = torch.optim.Adam(
            self.network.parameters(), training.learning_rate, weight_decay=training.weight_decay
        )
        self._batches = batches

    def step(self, number: int) -> float:
        """Take a step on one of the batches and return its loss."""
        batch = self._batches[(number - 1) % COMPARED]
        loss = functional.cross_entropy(self.network(batch.inputs), batch.labels)
        self._adam.zero_grad()
        loss.backward()
        self._adam.step()
        return loss.item()


def compare(theirs: Callable[[int], float], ours: Callable[[int], float], precision: StatedPrecision) -> float:
    """Return the largest relative difference of the losses of the first steps, from the same weights."""
    bounds = [FIRST_LOSS_ERROR[precision]] + (COMPARED - 1) * [LOSS_ERROR[precision]]
    errors = []
    for number, bound in enumerate(bounds, start=1):
        expected, found = theirs(number), ours(number)
        errors.append(abs(found - expected) / abs(expected))
        assert errors[-1] <= bound, f"step {number}: loss {found} instead of {expected} in {precision}"
    return max(errors)


def precisions() -> list[StatedPrecision]:
    return ["float32", "bfloat16"] if hardware_of(CPU).bfloat16 else ["float32"]


def on_digits(algorithm: AlgorithmConfig, precision: StatedPrecision) -> RunConfig:
    data = RotatedColoredMNIST()
    return RunConfig(
        data=data,
        target=(data.test_domain,),
        algorithm=algorithm,
        training=TrainingConfig(batch_per_domain=32),
        precision=precision,
    )


def small_sides(domainbed: Path) -> tuple[list[Side], list[str]]:
    """Compare the small CNN's losses, and return what to time."""
    sides, notes = [], []
    for method, config in (("ERM", ERM.Config()), ("CORAL", CORAL.Config())):
        for precision in precisions():
            ours = Messi(on_digits(config, precision))
            arguments = domainbed, method, on_digits(config, precision), ours.batches(), ours.weights
            theirs = DomainBed(*arguments)
            if precision == "float32":
                apart = Apart(*arguments)
                sides.append(Side(f"DomainBed, {method}, float32, without input pipeline", apart.step))
                sides.append(Side(f"DomainBed, {method}, with messi's settings", theirs.step))
            error = compare(apart.step if precision == "float32" else theirs.step, ours.step, precision)
            notes.append(f"{method} {precision} {error:.1e}")
            sides.append(Side(f"messi, {method}, {precision}", ours.step))
    sides += [Side(f"messi, MESSI, {one}", Messi(on_digits(MESSI.Config(), one)).step) for one in precisions()]
    return sides, notes


def deit_sides(jpegs: Path) -> tuple[list[Side], list[Side], list[str]]:
    """Compare DeiT-Ti's losses and logits, and return what to time in training and in prediction."""
    training, prediction, notes = [], [], []
    for precision in precisions():
        config = RunConfig(
            data=Folder(path=str(jpegs)),
            target=("target",),
            algorithm=ERM.Config(),
            encoder=EncoderConfig(backbone=DEIT, pretrained=False),
            training=TrainingConfig(batch_per_domain=8),
            precision=precision,
        )
        ours = Messi(config)
        theirs = Timm(config, ours.batches(), ours.weights)
        loader = ours.parts.loader
        rows = loader.data.indices("train", loader.data.domains("train")[0])[:IMAGES]
        ready = torch.cat(list(loader.inputs(rows.split(IMAGES))))
        expected = plain(theirs.network, ready)
        found = predict(ours.parts.algorithm, [ready]).logits
        ours.parts.algorithm.train()
        logit_error = float((found - expected).norm() / expected.norm())
        assert logit_error <= LOGIT_ERROR[precision], f"logits: error {logit_error} in {precision}"
        error = compare(theirs.step, ours.step, precision)
        notes.append(f"DeiT-Ti {precision} {error:.1e}, logits {logit_error:.1e}")
        if precision == "float32":
            training.append(Side("timm, float32, without input pipeline", theirs.step))
            prediction.append(Side("timm, float32, inputs ready", plainly(theirs.network, ready)))
        training.append(Side(f"messi, ERM, {precision}", ours.step))
        prediction.append(Side(f"messi, {precision}", predicting(ours.parts, rows)))
    return training, prediction, notes


def predicting(parts: RunParts, rows: Tensor) -> Callable[[int], float]:
    """Return a function that prepares and predicts stored images."""
    return lambda _: float(predict(parts.algorithm, parts.loader.inputs(rows.split(IMAGES))).logits.sum())


def plainly(network: nn.Module, ready: Tensor) -> Callable[[int], float]:
    """Return a function that predicts prepared images with timm."""
    return lambda _: float(plain(network, ready).sum())


def plain(network: nn.Module, inputs: Tensor) -> Tensor:
    """Predict as timm does."""
    with torch.inference_mode():
        logits: Tensor = network.eval()(inputs)
    network.train()
    return logits


def table(title: str, unit: int, sides: list[Side], turns: int) -> list[str]:
    """Time the sides in turns and return the rows; ``unit`` steps or images count."""
    times: dict[str, list[float]] = {side.name: [] for side in sides}
    for turn in range(turns + 1):
        for side in sides:
            start = time.perf_counter()
            side.step(COMPARED + 1 + turn)
            if turn:  # the first one warms up
                times[side.name].append(time.perf_counter() - start)
    medians = {name: statistics.median(found) for name, found in times.items()}
    rows, base = [f"| {title} | |", "|---|---:|---:|"], 0.0
    for name, seconds in medians.items():
        base = base if "messi" in name else seconds
        rows.append(f"| {name} | {unit / seconds:.2f} | {base / seconds:.2f} x |")
    return [*rows, ""]


def main() -> None:
    parser = argparse.ArgumentParser(description="Time training and prediction on the CPU.")
    parser.add_argument("--domainbed", type=Path, required=True, help="a checkout of facebookresearch/DomainBed")
    parser.add_argument("--turns", type=int, default=9, help="how often each side is timed")
    parser.add_argument("--save", action="store_true", help="save the table under benchmarks/results")
    options = parser.parse_args()
    torch.set_num_threads(THREADS)
    keep_freed_memory()  # for both sides, as the command line does
    with tempfile.TemporaryDirectory() as name, deterministic():
        os.environ["MESSI_HOME"] = f"{name}/home"
        make_jpegs(Path(name) / "jpegs")
        small, notes = small_sides(options.domainbed.resolve())
        lines = table("small_cnn, 9 x 32 digits | steps per second", 1, small, options.turns)
        training, prediction, more = deit_sides(Path(name) / "jpegs")
        lines += table("DeiT-Ti/16, 3 x 8 augmented images | steps per second", 1, training, options.turns)
        lines += table("DeiT-Ti/16, prediction | images per second", IMAGES, prediction, options.turns)
    missing = "" if hardware_of(CPU).bfloat16 else ", which has no bfloat16"
    lines += [
        f"{cpu_model()}{missing}; {THREADS} threads, torch {torch.__version__}, timm {timm.__version__}.",
        f"Medians of {options.turns} turns. Each ratio is to the row of the other code above it.",
        f"Largest relative differences of the losses of {COMPARED} steps: {'; '.join([*notes, *more])}.",
    ]
    command = f"--domainbed DomainBed --turns {options.turns} --save"
    show("\n".join(lines) + "\n", name="train_cpu", title="Training on the CPU", save=options.save, options=command)


if __name__ == "__main__":
    main()
