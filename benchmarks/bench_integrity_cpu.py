"""What checksums cost: loading a model, writing and reading a checkpoint, a whole run.

    python benchmarks/bench_integrity_cpu.py [--save]

A model is loaded as version 0.1 did, from a file without a checksum into a network with drawn weights, and as now; both
first give the same tensors. The time inside the checksums is measured apart and held to 2 % of what the call took
without them: unlike the difference of two times it does not drown in the machine's noise.
"""

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from unittest import mock

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from keep import parse, show
from messi.algorithms._base import build
from messi.algorithms.messi import Messi
from messi.core import checksum as checksums
from messi.core import records, tensorfile
from messi.core.batch import Task
from messi.core.checksum import KEY, METADATA, Bytes
from messi.core.info import version
from messi.core.tensorfile import read_tensors, write_tensors
from messi.data.datasets.rotated_colored_mnist import RotatedColoredMnist
from messi.engine.config import RunConfig, TrainingConfig
from messi.engine.run import run
from messi.evaluation import model
from messi.evaluation.model import ModelDescription, load, save_model
from messi.models.encoder import EncoderConfig

TIMES, HELD_TO = 15, 0.02
BACKBONES = {"DeiT-Ti/16": "deit_tiny_patch16_224", "DeiT-S/16": "deit_small_patch16_224"}


class Stopwatch:
    """Adds up the time inside the checksums."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self, parts: Iterable[Bytes]) -> str:
        """Return the checksum."""
        start = time.perf_counter()
        result = checksums.checksum(parts)
        self.seconds += time.perf_counter() - start
        return result


def measure(work: Callable[[], object], times: int = TIMES) -> tuple[float, float]:
    """Return the median time of some work, and that inside the checksums, in seconds."""
    work()
    totals, inside = [], []
    for _ in range(times):
        watch = Stopwatch()
        with mock.patch.object(tensorfile, "checksum", watch), mock.patch.object(records, "checksum", watch):
            start = time.perf_counter()
            work()
            totals.append(time.perf_counter() - start)
        inside.append(watch.seconds)
    return statistics.median(totals), statistics.median(inside)


def save(folder: Path, backbone: str) -> Path:
    """Write a MESSI model of a backbone with random weights."""
    encoder = EncoderConfig(backbone=backbone, pretrained=False)
    config = RunConfig(data=RotatedColoredMnist(), encoder=encoder).resolved()
    spec = config.encoder.input_spec((3, 224, 224))
    task = Task(input_shape=spec.shape, num_classes=7, num_domains=3)
    network = build(config.algorithm, task=task, encoder=config.encoder)
    description = ModelDescription(
        config=config.to_dict(),
        version=version(),
        data="",
        classes=tuple("abcdefg"),
        sources=("x", "y", "z"),
        target=(),
        environment={},
        step=1,
        task=task,
        spec=spec,
    )
    path = folder / f"{backbone}.safetensors"
    save_model(path, network.state_dict(), description)
    return path


def without_checksum(path: Path) -> Path:
    """Write the same file as version 0.1 did."""
    with safe_open(path, framework="pt") as file:
        values = json.loads(file.metadata()[METADATA])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    del values[KEY]
    old = path.with_name(f"old-{path.name}")
    save_file(tensors, old, metadata={METADATA: json.dumps(values | {"version": "0.1.0"})})
    return old


def models(folder: Path) -> list[str]:
    """Time the loading of models."""
    rows = []

    def load_as_before(path: Path) -> None:
        with mock.patch.object(model, "uninitialised", nullcontext):
            load(path)

    for name, backbone in BACKBONES.items():
        path = save(folder, backbone)
        old = without_checksum(path)
        for (key, ours), (other, theirs) in zip(
            load(path).algorithm.state_dict().items(), load(old).algorithm.state_dict().items(), strict=True
        ):
            assert key == other
            assert torch.equal(ours, theirs)
        seconds, inside = measure(partial(load, path))
        before, _ = measure(partial(load_as_before, old))
        rows.append(row(f"load MESSI, {name}, {path.stat().st_size / 1e6:.0f} MB", seconds, inside, before))
    return rows


def checkpoint(folder: Path) -> list[str]:
    """Time a checkpoint of MESSI on DeiT-S: weights and both moments of Adam."""
    path = folder / "last.safetensors"
    weights, _ = read_tensors(folder / f"{BACKBONES['DeiT-S/16']}.safetensors")
    state = {f"{part}/{name}": tensor for part in ("weights", "first", "second") for name, tensor in weights.items()}
    size = sum(tensor.nbytes for tensor in state.values()) / 1e6
    times = measure(lambda: write_tensors(path, state, {"step": 1}), 5)
    return [row(f"write a checkpoint, {size:.0f} MB", *times)]


def whole_run(folder: Path) -> list[str]:
    """Time a run with many checkpoints and everything that is written at its end."""
    training = TrainingConfig(steps=60, evaluate_every=10)
    config = RunConfig(
        data=RotatedColoredMnist(environments=10),
        target=("rot0-p0.5",),
        encoder=EncoderConfig(backbone="tiny_cnn"),
        algorithm=Messi.Config(),
        training=training,
    )
    places = iter(range(100))
    times = measure(lambda: run(config, out=folder / f"run{next(places)}", device="cpu"), 3)
    return [row("a run of 60 steps with 6 checkpoints, tiny_cnn", *times)]


def row(what: str, seconds: float, inside: float, before: float | None = None) -> str:
    """Return a line of the table, once it holds what it is held to."""
    share = inside / (seconds - inside if before is None else before)
    assert share < HELD_TO, f"{what}: checksums take {share:.2%}"
    old = "" if before is None else f"{1e3 * before:.0f}"
    return f"| {what} | {1e3 * seconds:.0f} | {old} | {1e3 * inside:.1f} | {share:.2%} |"


def main() -> None:
    options = parse(__doc__ or "")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = [*models(folder), *checkpoint(folder), *whole_run(folder)]
    table = "\n".join(
        [
            "| what | now, ms | as version 0.1, ms | inside the checksums, ms | of the time without them |",
            "|---|---:|---:|---:|---:|",
            *rows,
        ]
    )
    about = f"{torch.get_num_threads()} CPU threads, torch {torch.__version__}; medians. Each share is held to 2 %."
    show(f"{table}\n\n{about}\n", name="integrity_cpu", title="What checksums cost", save=options.save)


if __name__ == "__main__":
    main()
