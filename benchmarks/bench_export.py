"""ONNX Runtime with an exported file against ``Model.predict``, on 2 CPU cores: equal answers, then images per second.

    python benchmarks/bench_export.py [--images FOLDER] [--number N] [--save]

MESSI and GMoE on DeiT-Ti/16, ERM on ResNet-50, 7 classes, random weights. The classifier is scaled so that every class
is the most probable one for some images. Both sides get the same uint8 images and resize them to 224 x 224. They are
compared on 500 images of different sizes, made up or from a folder, one by one in ONNX Runtime. Then they are timed on
images of 256 x 256, one by one and in batches of 32. The sides take turns; a speed is a median.
"""

import argparse
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnxruntime
import torch
from torch import Tensor
from torch.nn import functional

from bench_ssi_cpu import cpu_model
from harness import show
from messi.algorithms.common.base import ALGORITHMS, build
from messi.core.batch import Task
from messi.core.info import version
from messi.data.datasets.two_subsets import TwoSubsets
from messi.data.image_files import read_picture
from messi.data.images import Images
from messi.data.preprocess import prepare
from messi.engine.config import RunConfig
from messi.evaluation.model import Model, ModelDescription, load, save_model
from messi.models.encoder import EncoderConfig
from messi.serving.export import TOLERANCE, export

MODELS = {"messi": "deit_tiny_patch16_224", "gmoe": "deit_tiny_patch16_224", "erm": "resnet50"}
CLASSES, THREADS, TURNS, BATCH = 7, 2, 3, 32


@dataclass(frozen=True)
class Sides:
    """A model and its exported file; both return probabilities."""

    model: Model
    session: Any

    def messi(self, images: Tensor) -> Tensor:
        """Predict a batch with messi."""
        return self.model.predict(images).probabilities

    def runtime(self, images: Tensor) -> Tensor:
        """Predict a batch with ONNX Runtime."""
        return torch.from_numpy(self.session.run(None, {"images": images.numpy()})[0])


def make_images(number: int) -> list[Tensor]:
    """Return smooth colours with noise, as photographs have, of sizes from 40 to 500 pixels."""
    generator = torch.Generator().manual_seed(0)
    images = []
    for height, width in torch.randint(40, 500, (number, 2), generator=generator).tolist():
        smooth = functional.interpolate(torch.rand(1, 3, 6, 6, generator=generator), (height, width), mode="bilinear")
        noise = torch.rand(smooth.shape, generator=generator)
        images.append((255 * (0.7 * smooth + 0.3 * noise))[0].to(torch.uint8))
    return images


def make_sides(method: str, images: list[Tensor], folder: Path) -> Sides:
    """Build, save and export a model."""
    torch.manual_seed(0)
    encoder = EncoderConfig(backbone=MODELS[method], pretrained=False)
    config = RunConfig(data=TwoSubsets(), algorithm=ALGORITHMS.config(method)(), encoder=encoder)
    spec = encoder.input_spec((3, 224, 224))
    task = Task(input_shape=spec.shape, num_classes=CLASSES, num_domains=3)
    algorithm = build(config.algorithm, task=task, encoder=encoder).eval()
    classifiers = [one for one in algorithm.modules() if getattr(one, "out_features", None) == CLASSES]
    (classifier,) = classifiers
    with torch.no_grad():
        logits = algorithm.predict(prepare(Images.pack(images[:: max(len(images) // 64, 1)]), spec)).logits
        scale = 3 / logits.std(0)
        classifier.weight.mul_(scale[:, None])  # type: ignore[operator]
        classifier.bias.copy_((classifier.bias - logits.mean(0)) * scale)  # type: ignore[operator]
    description = ModelDescription(
        config=config.resolved().to_dict(),
        version=version(),
        data="none",
        classes=tuple("abcdefg"),
        sources=("one", "two", "three"),
        target=(),
        environment={},
        step=0,
        task=task,
        spec=spec,
    )
    path = folder / f"{method}.safetensors"
    save_model(path, algorithm.state_dict(), description)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    file = export(path, out=folder / f"{method}.onnx").path
    return Sides(load(path), onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"]))


def compare(sides: Sides, images: list[Tensor]) -> tuple[float, int]:
    """Return the largest difference of a probability, and how many classes are predicted; assert equal answers."""
    wanted = sides.model.predict(images).probabilities
    found = torch.cat([sides.runtime(image[None]) for image in images])
    difference = float((found - wanted).abs().max())
    assert difference <= TOLERANCE, f"probabilities: held to {TOLERANCE}, found {difference:.2g}"
    assert found.argmax(1).equal(wanted.argmax(1)), "another class"
    return difference, len(wanted.argmax(1).unique())


def images_per_second(side: Callable[[Tensor], Tensor], images: Tensor, size: int) -> float:
    start = time.perf_counter()
    for batch in images.split(size):
        side(batch)
    return len(images) / (time.perf_counter() - start)


def measure(method: str, images: list[Tensor], folder: Path) -> list[str]:
    """Return a row for each size of a batch."""
    sides = make_sides(method, images, folder)
    difference, classes = compare(sides, images)
    square = torch.randint(0, 256, (2 * BATCH, 3, 256, 256), dtype=torch.uint8)
    rows = []
    for size, number in ((1, BATCH), (BATCH, 2 * BATCH)):
        both = (sides.messi, sides.runtime)
        turns = [[images_per_second(side, square[:number], size) for side in both] for _ in range(TURNS)]
        messi, runtime = map(statistics.median, zip(*turns, strict=True))
        rows.append(
            f"| {method}, {MODELS[method]}, batch {size} | {messi:.1f} | {runtime:.1f} | {runtime / messi:.2f} x "
            f"| {difference:.1g} | {classes} of {CLASSES} |"
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare ONNX Runtime with Model.predict.")
    parser.add_argument("--images", type=Path, help="a folder of images to compare on, such as PACS")
    parser.add_argument("--number", type=int, default=500, help="the number of images to compare on")
    parser.add_argument("--save", action="store_true", help="save the table under benchmarks/results")
    options = parser.parse_args()
    torch.set_num_threads(THREADS)
    images, source = make_images(options.number), "made up"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.images:
            files = sorted(path for path in options.images.rglob("*") if path.suffix in {".jpg", ".png"})
            chosen = files[:: max(len(files) // options.number, 1)][: options.number]
            images, source = [read_picture(path) for path in chosen], options.images.name
        rows = [row for method in MODELS for row in measure(method, images, folder)]
    head = "| images of 256 x 256 | messi, images/s | ONNX Runtime | | largest difference | classes predicted |"
    about = (
        f"{cpu_model()}, {THREADS} threads, torch {torch.__version__}, onnxruntime {onnxruntime.__version__}, "
        f"Python {platform.python_version()}"
    )
    equal = f"Equal results on {len(images)} images ({source}): same classes, probabilities to {TOLERANCE:g}."
    lines = [head, "|---|---:|---:|---:|---:|---:|", *rows, "", f"{equal} Medians of {TURNS} turns.", about]
    show("\n".join(lines) + "\n", name="export_cpu", title="Exported models on the CPU", save=options.save)


if __name__ == "__main__":
    main()
