"""Accuracy on held-out domains in float32 and in bfloat16 on a CPU, with the same seeds.

    python benchmarks/bench_precision_cpu.py --data PACS --weights deit_tiny_patch16_224.safetensors [--save]

The embedded digits (Rotated-Colored MNIST) with ``tiny_cnn``; a part of PACS with DeiT-Ti/16 and ``--tune head``,
images encoded and head trained in the stated precision. Every run is done in both precisions with the same seed, and
the seeds' differences, each a mean over targets, give a 95 % interval (Student's t). The bound, stated before the runs:
the interval contains 0, or its lower end is above -1 point. A CPU without bfloat16 emulates it, slower and with the
same rounding.
"""

import argparse
import dataclasses
import itertools
import math
import os
import statistics
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from scipy import stats

from bench_ssi_cpu import cpu_model
from bench_tune_head import subset
from harness import show
from messi.algorithms.erm import ERM
from messi.algorithms.messi import MESSI
from messi.core.hardware import hardware_of
from messi.core.precision import StatedPrecision
from messi.data.datasets.folder import Folder
from messi.data.datasets.rotated_colored_mnist import RotatedColoredMNIST
from messi.engine.config import RunConfig, TrainingConfig
from messi.engine.run import run
from messi.models.encoder import EncoderConfig

DOMAINS = ("art_painting", "cartoon", "photo", "sketch")
PRECISIONS: tuple[StatedPrecision, ...] = ("float32", "bfloat16")
ERM_CONFIG, MESSI_CONFIG = ERM.Config(), MESSI.Config(balance_weight=0.1)


@dataclass(frozen=True)
class Question:
    """A row of the table: a config that is run with several targets and seeds."""

    name: str
    config: RunConfig
    targets: tuple[str, ...]
    seeds: int

    def accuracies(self, precision: StatedPrecision, folder: Path) -> dict[str, list[float]]:
        """Return the accuracy on each target, by seed."""
        found: dict[str, list[float]] = {target: [] for target in self.targets}
        for target, seed in itertools.product(self.targets, range(self.seeds)):
            config = dataclasses.replace(self.config, target=(target,), seed=seed, precision=precision)
            result = run(config, out=folder / config.resolved().folder_name(), device="cpu")
            found[target].append(result.target[target])
        return found


def questions(data: Path, weights: str, seeds: int) -> Iterable[Question]:
    """Yield the rows."""
    digits = RotatedColoredMNIST(environments=10)
    tiny, steps = EncoderConfig(backbone="tiny_cnn"), TrainingConfig(steps=100, evaluate_every=50)
    for method in (ERM_CONFIG, MESSI_CONFIG):
        config = RunConfig(data=digits, algorithm=method, encoder=tiny, training=steps)
        yield Question(f"digits, tiny_cnn, {method.name}", config, (digits.test_domain,), seeds)
    pacs = Folder(path=str(data))
    frozen = EncoderConfig(backbone="deit_tiny_patch16_224", weights=weights, tune="head")
    config = RunConfig(data=pacs, algorithm=MESSI_CONFIG, encoder=frozen, training=steps)
    yield Question("PACS, DeiT-Ti/16, `--tune head`, messi", config, DOMAINS, seeds)


def row(question: Question, folder: Path) -> str:
    """Do the runs of a row and return its means, the paired difference, and whether the bound holds."""
    by_seed = {
        one: [statistics.fmean(of_seed) for of_seed in zip(*question.accuracies(one, folder).values(), strict=True)]
        for one in PRECISIONS
    }
    differences = [low - full for full, low in zip(by_seed["float32"], by_seed["bfloat16"], strict=True)]
    mean, error = statistics.fmean(differences), statistics.stdev(differences) / math.sqrt(question.seeds)
    reach = float(stats.t.ppf(0.975, question.seeds - 1)) * error
    holds = mean - reach <= 0 <= mean + reach or mean - reach > -0.01
    shown = " | ".join(f"{100 * statistics.fmean(by_seed[one]):.1f}" for one in PRECISIONS)
    interval = f"{100 * (mean - reach):+.2f} to {100 * (mean + reach):+.2f}"
    number = len(question.targets) * question.seeds
    return f"| {question.name} | {number} | {shown} | {100 * mean:+.2f} | {interval} | {'yes' if holds else 'no'} |"


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare the accuracy in float32 and bfloat16.")
    parser.add_argument("--data", type=Path, required=True, help="the folder of PACS")
    parser.add_argument("--weights", type=Path, required=True, help="the weights of deit_tiny_patch16_224")
    parser.add_argument("--images", type=int, default=10, help="how many images of each class and domain of PACS")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--save", action="store_true", help="save the table under benchmarks/results")
    options = parser.parse_args()
    lines = [
        "| | runs | float32, % | bfloat16, % | difference | 95 % interval | bound holds |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    with tempfile.TemporaryDirectory() as name:
        os.environ["MESSI_HOME"] = f"{name}/home"
        few = subset(options.data, Path(name) / "PACS", options.images)
        for question in questions(few, str(options.weights.resolve()), options.seeds):
            lines.append(row(question, Path(name)))
            print(lines[-1], flush=True)
    native = hardware_of(torch.device("cpu")).bfloat16
    lines += [
        "",
        f"{options.seeds} seeds; {options.images} images of each class and domain of PACS.",
        f"{cpu_model()}, bfloat16 {'in hardware' if native else 'emulated'}, torch {torch.__version__}.",
    ]
    command = "--data PACS --weights deit_tiny_patch16_224.safetensors"
    command += f" --images {options.images} --seeds {options.seeds} --save"
    title = "Accuracy in float32 and bfloat16 on the CPU"
    show("\n".join(lines) + "\n", name="precision_cpu", title=title, save=options.save, options=command)


if __name__ == "__main__":
    main()
