"""The cost of checksums: loading a model, writing a checkpoint, a whole run, opening and reading a store.

    python benchmarks/bench_integrity_cpu.py [--save]

A model is loaded in three ways: with its checksum compared, without the comparison, and as in version 0.1, from a file
without a checksum into a network with initialised weights. All three first give the same tensors, and take turns when
timed; so do the first reads of images. Everywhere else the time inside the checksums is measured separately, because
the difference of two times is smaller than the noise of the machine.
Checksums must take at most 2 % of the time without them; for loading, of the time of version 0.1. A checkpoint is
written by a thread during training, which does not wait for it: its cost is part of the whole run.
"""

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path
from unittest import mock

import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import save_file

from harness import parse, show
from messi.algorithms.common.base import build
from messi.algorithms.messi import MESSI
from messi.core import checksum as checksums
from messi.core import records, tensorfile
from messi.core.batch import Task
from messi.core.checksum import CHECKSUM_KEY, METADATA_KEY, Bytes
from messi.core.info import version
from messi.core.tensorfile import read_tensors, write_tensors
from messi.data import store_journal
from messi.data.augment import draw_parameters, prepare_augmented
from messi.data.datasets.folder import Folder
from messi.data.datasets.rotated_colored_mnist import RotatedColoredMNIST
from messi.data.images import Images, PixelChecksums
from messi.engine.config import RunConfig, TrainingConfig
from messi.engine.run import run
from messi.evaluation import model
from messi.evaluation.model import ModelDescription, load, save_model
from messi.models.encoder import EncoderConfig

TIMES, LOADS, EPOCHS, HELD_TO, IMAGES = 15, 101, 9, 0.02, 2000
BACKBONES = {"DeiT-Ti/16": "deit_tiny_patch16_224", "DeiT-S/16": "deit_small_patch16_224"}


class Stopwatch:
    """Accumulates the time inside the checksums."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self, parts: Iterable[Bytes]) -> str:
        """Return the checksum."""
        start = time.perf_counter()
        result = checksums.checksum(parts)
        self.seconds += time.perf_counter() - start
        return result


def measure(work: Callable[[], object], times: int = TIMES) -> tuple[float, float]:
    """Return the median time of a function, and of the checksums in it, in seconds."""
    work()
    totals, inside = [], []
    for _ in range(times):
        watch = Stopwatch()
        with ExitStack() as patches:
            for module in (tensorfile, records, store_journal):
                patches.enter_context(mock.patch.object(module, "checksum", watch))
            start = time.perf_counter()
            work()
            totals.append(time.perf_counter() - start)
        inside.append(watch.seconds)
    return statistics.median(totals), statistics.median(inside)


def save(folder: Path, backbone: str) -> Path:
    """Write a MESSI model of a backbone with random weights."""
    encoder = EncoderConfig(backbone=backbone, pretrained=False)
    config = RunConfig(data=RotatedColoredMNIST(), encoder=encoder).resolved()
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
    """Write the file in the format of version 0.1."""
    with safe_open(path, framework="pt") as file:
        values = json.loads(file.metadata()[METADATA_KEY])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    del values[CHECKSUM_KEY]
    old = path.with_name(f"old-{path.name}")
    save_file(tensors, old, metadata={METADATA_KEY: json.dumps(values | {"version": "0.1.0"})})
    return old


def models(folder: Path) -> list[str]:
    """Time the loading of models."""
    rows = []
    for name, backbone in BACKBONES.items():
        path = save(folder, backbone)
        old = without_checksum(path)
        for (key, ours), (other, theirs) in zip(
            load(path).algorithm.state_dict().items(), load(old).algorithm.state_dict().items(), strict=True
        ):
            assert key == other
            assert torch.equal(ours, theirs)
        rows.append(loaded(f"load MESSI, {name}, {path.stat().st_size / 1e6:.0f} MB", path, old))
    return rows


def loaded(what: str, path: Path, old: Path) -> str:
    """Time in turn: a model with its checksum compared, without, and as in version 0.1."""
    stated = checksums.file_checksum(path)

    def blindly() -> None:
        with mock.patch.object(tensorfile, "checksum", return_value=stated):
            load(path)

    def as_before() -> None:
        with mock.patch.object(model, "uninitialised", nullcontext):
            load(old)

    now, blind, before = in_turn([partial(load, path), blindly, as_before], LOADS)
    more = now - blind
    assert more < HELD_TO * before, f"{what}: checksums take {more / before:.2%} of the time of version 0.1"
    return f"| {what} | {1e3 * now:.1f} | {1e3 * blind:.1f} | {more / blind:.1%} | {1e3 * before:.1f} |"


def checkpoint(folder: Path) -> list[str]:
    """Time a checkpoint of MESSI on DeiT-S: weights and both moments of Adam."""
    path = folder / "last.safetensors"
    weights, _ = read_tensors(folder / f"{BACKBONES['DeiT-S/16']}.safetensors")
    state = {
        f"{part}/{name}": tensor.clone() for part in ("weights", "first", "second") for name, tensor in weights.items()
    }
    size = sum(tensor.nbytes for tensor in state.values()) / 1e6
    times = measure(lambda: write_tensors(path, state, {"step": 1}), 5)
    return [row(f"write a checkpoint, {size:.0f} MB, during training", *times, held_to=None)]


def whole_run(folder: Path) -> list[str]:
    """Time a run with many checkpoints and all files that it writes at the end."""
    training = TrainingConfig(steps=60, evaluate_every=10)
    config = RunConfig(
        data=RotatedColoredMNIST(environments=10),
        target=("rot0-p0.5",),
        encoder=EncoderConfig(backbone="tiny_cnn"),
        algorithm=MESSI.Config(),
        training=training,
    )
    places = iter(range(100))
    times = measure(lambda: run(config, out=folder / f"run{next(places)}", device="cpu"), 3)
    return [row("a run of 60 steps with 6 checkpoints, tiny_cnn", *times)]


def store(folder: Path) -> list[str]:
    """Time opening a store, and the first augmentation of every image, which compares its checksum."""
    os.environ["MESSI_HOME"] = str(folder / "home")
    pixels = torch.randint(256, (IMAGES, 227, 227, 3), dtype=torch.uint8, generator=torch.manual_seed(0))
    for index, image in enumerate(pixels):
        place = folder / "images" / f"domain{index % 4}" / f"class{index % 7}"
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image.numpy()).save(place / f"{index}.png", compress_level=1)
    data = Folder(path=str(folder / "images"))
    spec = EncoderConfig(backbone=BACKBONES["DeiT-Ti/16"]).input_spec((3, 227, 227))

    def augmented() -> None:
        images = data.load().inputs
        assert isinstance(images, Images)
        parameters = draw_parameters(images.sizes, torch.manual_seed(0))
        for start in range(0, IMAGES, 96):
            prepare_augmented(images.select(slice(start, start + 96)), parameters[start : start + 96], spec)

    def blindly() -> None:
        with mock.patch.object(PixelChecksums, "check"):
            augmented()

    with_checksums, without = in_turn([augmented, blindly], EPOCHS)
    return [
        row(f"open a store of {IMAGES:,} images", *measure(data.load)),
        row("open it and augment every image once", with_checksums, with_checksums - without),
    ]


def in_turn(works: Sequence[Callable[[], object]], times: int) -> list[float]:
    """Return the median times of several functions that take turns."""
    seconds: list[list[float]] = [[] for _ in works]
    for _ in range(times):
        for work, taken in zip(works, seconds, strict=True):
            start = time.perf_counter()
            work()
            taken.append(time.perf_counter() - start)
    return [statistics.median(taken) for taken in seconds]


def row(what: str, seconds: float, inside: float, held_to: float | None = HELD_TO) -> str:
    """Return a row of the table after checking its bound."""
    share = inside / (seconds - inside)
    assert held_to is None or share < held_to, f"{what}: checksums take {share:.2%}"
    return f"| {what} | {1e3 * seconds:.1f} | {1e3 * (seconds - inside):.1f} | {share:.2%} | |"


def main() -> None:
    options = parse(__doc__ or "")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = [*models(folder), *checkpoint(folder), *whole_run(folder), *store(folder)]
    table = "\n".join(
        [
            "| what | with checksums, ms | without, ms | more | version 0.1, ms |",
            "|---|---:|---:|---:|---:|",
            *rows,
        ]
    )
    held = "Bounds: 2 %; for loading, 2 % of the time of version 0.1; none for a checkpoint alone."
    about = f"{torch.get_num_threads()} CPU threads, torch {torch.__version__}; medians. {held}"
    show(f"{table}\n\n{about}\n", name="integrity_cpu", title="What checksums cost", save=options.save)


if __name__ == "__main__":
    main()
