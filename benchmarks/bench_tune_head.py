"""All of PACS on a CPU with a frozen encoder: ``messi train --tune head``, four targets, from a folder of images.

    python benchmarks/bench_tune_head.py --data PACS --weights deit_tiny_patch16_224.safetensors [--save]

First, training on cached features is compared with training through the frozen encoder: same features, and same
weights after some steps of MESSI and of ERM. Then two commands are timed as a user would run them, in new processes:
MESSI, which also decodes and encodes all images, and a second method, which finds the features.
With ``--images N``, only N images of each class and domain are used for a few steps, to see that everything works.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from harness import show
from messi.algorithms.common.base import AlgorithmConfig
from messi.algorithms.erm import ERM
from messi.algorithms.messi import MESSI
from messi.core.batch import Batch
from messi.core.rundir import RunDir
from messi.data.datasets.folder import Folder
from messi.data.images import Images
from messi.data.preprocess import prepare
from messi.engine.build import build_run
from messi.engine.config import RunConfig, TrainingConfig
from messi.engine.loop import RunParts
from messi.models.encoder import Encoder, EncoderConfig

BACKBONE, SECOND = "deit_tiny_patch16_224", "coral"
STEPS, FEW, ROUNDING = 10, 4, 1e-4
LIMITS = {"messi": 600, SECOND: 180}


def main() -> None:
    """Compare, time and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the folder of PACS")
    parser.add_argument("--weights", type=Path, required=True, help=f"the weights of {BACKBONE}")
    parser.add_argument("--images", type=int, help="use only so many images of each class and domain")
    parser.add_argument("--save", action="store_true", help="save the table under benchmarks/results")
    options = parser.parse_args()
    weights = str(options.weights.resolve())
    schedule = ["--steps", "20", "--evaluate-every", "10"] if options.images else []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["MESSI_HOME"] = str(folder / "home")
        few = subset(options.data, folder / "few", FEW)
        errors = {one.name: compare(few, weights, one) for one in (MESSI.Config(), ERM.Config())}
        assert max(errors.values()) < ROUNDING
        data = subset(options.data, folder / "PACS", options.images) if options.images else options.data.resolve()
        number = sum(1 for _ in data.glob("*/*/*"))
        seconds = {method: train(folder, data, weights, method, schedule) for method in LIMITS}
    rows = [
        "| PACS, four targets, `--tune head`, DeiT-Ti/16 | s | held to |",
        "|---|---:|---:|",
        *(f"| {title} | {seconds[method]:.0f} | {LIMITS[method]} |" for method, title in TITLES.items()),
        "",
        f"{number:,} images, {torch.get_num_threads()} threads, torch {torch.__version__}.",
        "Largest relative difference between weights trained on the cache and through the frozen encoder, "
        f"{STEPS} steps: " + ", ".join(f"{name} {error:.1e}" for name, error in errors.items()) + ".",
    ]
    title = "Head training on PACS on a CPU"
    show("\n".join(rows) + "\n", name="tune_head", title=title, save=options.save and not options.images)
    assert options.images or all(seconds[method] <= limit for method, limit in LIMITS.items())


TITLES = {"messi": "MESSI, with decoding and encoding", SECOND: f"{SECOND.upper()} on the same features"}


def subset(data: Path, folder: Path, number: int) -> Path:
    """Link the first images of every class and domain."""
    for place in data.resolve().glob("*/*"):
        target = folder / place.relative_to(data.resolve())
        target.mkdir(parents=True)
        for file in sorted(place.iterdir())[:number]:
            (target / file.name).symlink_to(file)
    return folder


def compare(data: Path, weights: str, algorithm: AlgorithmConfig) -> float:
    """Train on the cache and through the encoder; return the largest relative difference of the trained weights."""
    config = RunConfig(
        data=Folder(path=str(data)),
        target=("sketch",),
        algorithm=algorithm,
        encoder=EncoderConfig(backbone=BACKBONE, weights=weights, tune="head"),
        training=TrainingConfig(batch_per_domain=8),
        precision="float32",  # the features of bfloat16 are compared with those of the encoder by their own tests
    ).resolved()
    examples = config.data.load()
    assert isinstance(examples.inputs, Images)
    cached, through = (build_run(config, examples, RunDir(data / "none"), torch.device("cpu")) for _ in range(2))
    encoder = next(module for module in through.algorithm.modules() if isinstance(module, Encoder))
    for step in range(1, STEPS + 1):
        batch = cached.loader.batch(step)
        images = pictures(through, examples.inputs, step)
        torch.testing.assert_close(encoder(images), batch.inputs, rtol=1e-4, atol=1e-4)
        for parts, inputs in ((cached, batch.inputs), (through, images)):
            torch.manual_seed(step)
            parts.algorithm.train()
            parts.algorithm.update(Batch(inputs, batch.labels, batch.domains, step=step), parts.stepper)
    pairs = zip(cached.algorithm.state_dict().values(), through.algorithm.state_dict().values(), strict=True)
    return max(float((one - other).norm() / other.norm().clamp_min(1e-12)) for one, other in pairs)


def pictures(parts: RunParts, images: Images, step: int) -> torch.Tensor:
    """Return the prepared images of a step."""
    examples = parts.loader._sampler.block(0)[0][step - 1]  # type: ignore[union-attr]  # noqa: SLF001
    return prepare(images.select(examples), parts.loader.spec)


def train(folder: Path, data: Path, weights: str, method: str, schedule: list[str]) -> float:
    """Run ``messi train`` with every domain held out in turn and return the seconds that it takes."""
    command = [sys.executable, "-m", "messi", "train", "--data", str(data), "--algorithm", method, "--tune", "head"]
    command += ["--backbone", BACKBONE, "--weights", weights, "--device", "cpu", "--out", str(folder / method)]
    start = time.perf_counter()
    subprocess.run([*command, *schedule], cwd=folder, check=True)  # noqa: S603
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
