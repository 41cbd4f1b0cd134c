"""Input on two CPU cores: messi's loader against DomainBed's input pipeline, on the same generated JPEGs.

    python benchmarks/bench_input_cpu.py [--save]

DomainBed decodes each image with Pillow for every batch and transforms it with torchvision, in worker processes of
one DataLoader per source domain; it starts 8 of them for each, on any machine. messi decodes every image once and
augments from the mapped store. The images have at most 320 pixels per side, so both sides process the same pixels;
larger images would only slow down DomainBed. Before anything is timed, decoded pixels are compared bit for bit, and
augmented pixels are compared with torchvision's for the same parameters.
"""

import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Generator
from pathlib import Path

os.environ.setdefault("GOMP_SPINCOUNT", "2000")  # as the command line does

import numpy as np
import torch
import torchvision
from PIL import Image
from torch.utils.data import DataLoader, RandomSampler
from torchvision import transforms
from torchvision.datasets import ImageFolder
from torchvision.transforms.v2 import functional

from harness import parse, show
from messi.core.batch import InputSpec
from messi.data import augment
from messi.data.augment import AugmentationConfig
from messi.data.datasets.folder import Folder
from messi.data.images import Images
from messi.data.loader import Loader
from messi.data.sampling import Sampler, SamplingConfig
from messi.data.sealed_data import SealedData
from messi.data.splits import SplitConfig, make_split

DOMAINS, CLASSES, PER_CELL, SIZE = ("a", "b", "c", "target"), ("x", "y", "z"), 60, (320, 240)
PER_DOMAIN, SOURCES = 32, 3
SPEC = InputSpec(shape=(3, 224, 224), mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
WHOLE = InputSpec(shape=(3, 224, 224), mean=(0.0, 0.0, 0.0), std=(1 / 255, 1 / 255, 1 / 255))
BATCHES, TURNS = 10, 5
CHANGES = (
    functional.adjust_brightness,
    functional.adjust_contrast,
    functional.adjust_saturation,
    functional.adjust_hue,
)


def make_jpegs(root: Path) -> None:
    """Write smooth colours with noise, which take as long to decode as photographs."""
    rng = np.random.default_rng(0)
    for domain in DOMAINS:
        for label in CLASSES:
            folder = root / domain / label
            folder.mkdir(parents=True)
            for number in range(PER_CELL):
                coarse = Image.fromarray(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8)).resize(SIZE)
                noisy = np.asarray(coarse, dtype=np.float32) + rng.normal(0, 12, (SIZE[1], SIZE[0], 3))
                Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(folder / f"{number:03}.jpg", quality=90)


def messi_loader(root: Path) -> tuple[Loader, float]:
    """Return the loader and the time to decode all images."""
    start = time.perf_counter()
    examples = Folder(path=str(root)).load()
    seconds = time.perf_counter() - start
    split = make_split(
        examples, [3], SplitConfig(split="domainbed", validation_fraction=0.2, target_part="all"), seed=0
    )
    members = list(split.train.values())
    sampler = Sampler(
        config=SamplingConfig(sampling="replacement", batch_per_domain=PER_DOMAIN, domains_per_batch=None),
        members=members,
        labels=[examples.labels[m] for m in members],
        seed=0,
    )
    sealed = SealedData(examples, split)
    return Loader(
        data=sealed,
        spec=SPEC,
        device=torch.device("cpu"),
        sampler=sampler,
        augmentation=AugmentationConfig(augmentation="domainbed", validation_augmentation=False),
    ), seconds


def domainbed_batches(root: Path, workers: int) -> Generator[torch.Tensor]:
    """Yield batches from DomainBed's pipeline."""
    transform = transforms.Compose(
        [
            transforms.RandomResizedCrop(224, scale=(0.7, 1.0)),
            transforms.RandomHorizontalFlip(),
            transforms.ColorJitter(0.3, 0.3, 0.3, 0.3),
            transforms.RandomGrayscale(),
            transforms.ToTensor(),
            transforms.Normalize(mean=SPEC.mean, std=SPEC.std),
        ]
    )
    loaders = []
    for domain in DOMAINS[:SOURCES]:
        data = ImageFolder(str(root / domain), transform)
        sampler = RandomSampler(data, replacement=True, num_samples=10_000)
        loaders.append(iter(DataLoader(data, PER_DOMAIN, sampler=sampler, num_workers=workers, drop_last=True)))
    while True:
        yield torch.cat([next(loader)[0] for loader in loaders])


def assert_equal_results(root: Path) -> None:
    examples = Folder(path=str(root)).load()
    assert isinstance(examples.inputs, Images)
    for domain, first in zip(DOMAINS, range(0, len(examples), len(CLASSES) * PER_CELL), strict=True):
        for index in range(0, 180, 20):
            path, _ = ImageFolder(str(root / domain)).samples[index]
            pixels = functional.pil_to_tensor(Image.open(path).convert("RGB"))
            assert torch.equal(examples.inputs[first + index], pixels), path
    some = examples.inputs.select(slice(0, 32))
    drawn = augment.draw_parameters(some.sizes, torch.Generator().manual_seed(0))
    for i, ours in enumerate(augment.augment(some, drawn, WHOLE)):
        theirs = functional.resized_crop(some[i], *drawn.boxes[i].tolist(), [224, 224], antialias=True)
        theirs = functional.horizontal_flip(theirs) if drawn.flip[i] else theirs
        for number in drawn.order[i].tolist():
            theirs = CHANGES[number](theirs, drawn.factors[i, number].item())
        theirs = functional.rgb_to_grayscale(theirs, 3) if drawn.gray[i] else theirs
        difference = (ours - theirs.float()).abs()
        assert difference.mean() < 0.01, difference.mean()
        assert difference.max() <= 8, "each of five steps may round the other way, and the next ones multiply that"


def images_per_second(batch: Callable[[], object]) -> float:
    start = time.perf_counter()
    for _ in range(BATCHES):
        batch()
    return BATCHES * PER_DOMAIN * SOURCES / (time.perf_counter() - start)


def measure(root: Path) -> list[tuple[str, float]]:
    """Return the median speeds; every side warms up and runs alone."""
    results = []
    for workers in (8, 1):
        batches = domainbed_batches(root, workers)
        for _ in range(3):
            next(batches)
        speeds = [images_per_second(lambda: next(batches)) for _ in range(TURNS)]  # noqa: B023 (used at once)
        results.append((f"DomainBed's way, {SOURCES} x {workers} worker processes", statistics.median(speeds)))
        batches.close()
    loader, seconds = messi_loader(root)
    steps = iter(range(10**9))
    for _ in range(3):
        loader.batch(next(steps))
    speeds = [images_per_second(lambda: loader.batch(next(steps))) for _ in range(TURNS)]
    results.append(("messi, from the decoded store", statistics.median(speeds)))
    number = len(DOMAINS) * len(CLASSES) * PER_CELL
    results.append((f"messi, decoding {number} images once", number / seconds))
    return results


def main() -> None:
    save = parse("Time input on the CPU against DomainBed's way.").save
    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "jpegs"
        make_jpegs(root)
        os.environ["MESSI_HOME"] = f"{folder}/home-1"
        assert_equal_results(root)
        os.environ["MESSI_HOME"] = f"{folder}/home-2"
        rows = measure(root)
    theirs = max(speed for name, speed in rows if name.startswith("DomainBed"))
    lines = ["| augmented images at 224 x 224, 2 cores | images per second | |", "|---|---:|---:|"]
    lines += [f"| {name} | {speed:.0f} | {speed / theirs:.1f} x |" for name, speed in rows]
    versions = f"torch {torch.__version__}, torchvision {torchvision.__version__}, Python {platform.python_version()}"
    setting = f"median of {TURNS} x {BATCHES} batches of {PER_DOMAIN * SOURCES}"
    lines += ["", f"JPEGs of {SIZE[0]} x {SIZE[1]}, quality 90; {setting}; {versions}."]
    show("\n".join(lines) + "\n", name="input_cpu", title="Input on the CPU", save=save)


if __name__ == "__main__":
    main()
