"""Small data sets, a quick run, and a real browser for the pages."""

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

# The problems are tiny: more threads only wait for each other, here and in the processes that tests start.
os.environ["OMP_NUM_THREADS"] = "1"
# Numbers are compared in float32 on every CPU; tests of bfloat16 state it.
os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_VNNI"

import numpy as np
import pytest
import torch
from PIL import Image

# Without a GPU, Triton's interpreter runs the kernels, slowly but exactly.
INTERPRETED = not torch.cuda.is_available()
if INTERPRETED:
    os.environ["TRITON_INTERPRET"] = "1"

from messi.data.datasets.two_subsets import TwoSubsets
from messi.engine.config import RunConfig, TrainingConfig

if TYPE_CHECKING:  # machines for GPU tests have no browser
    from playwright.sync_api import Browser

pytest_plugins = ["tests.trust.summary"]
# Files that take more than half a minute, longest first. They start first: at the end, one would run alone.
LONG_FILES = [
    "sweeps/launchers/test_ray.py",
    "sweeps/launchers/test_local.py",
    "cli/test_demo.py",
    "engine/test_parallel.py",
    "engine/test_resume.py",
    "engine/test_torchrun.py",
    "sweeps/launchers/test_slurm.py",
    "docs/test_tutorials.py",
    "serving/test_export.py",
    "test_compile_kernels.py",
    "models/fused/test_vit.py",
    "docs/test_site.py",
    "serving/test_connections.py",
    "serving/test_service.py",
    "test_examples.py",
    "golden/test_curves.py",
    "cli/test_compare.py",
]
TINTS = {"photo": (1.0, 0.9, 0.8), "sketch": (0.5, 0.5, 0.5), "paint": (0.6, 0.9, 1.0)}


def draw(label: str, tint: tuple[float, float, float], seed: int, size: tuple[int, int] = (40, 32)) -> Image.Image:
    """Return a bright bar, across or upright by class, in the colours of a domain, with noise."""
    rng = np.random.default_rng(seed)
    pixels = rng.uniform(0, 60, (*size, 3))
    middle = rng.integers(10, 20)
    if label == "across":
        pixels[middle : middle + 6] += 180
    else:
        pixels[:, middle : middle + 6] += 180
    return Image.fromarray((pixels * np.array(tint)).clip(0, 255).astype(np.uint8))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order files: the long ones, then those with many tests; the order within a file is kept."""
    places = {Path(__file__).parent / name: place for place, name in enumerate(LONG_FILES)}
    counts = Counter(item.path for item in items)
    items.sort(key=lambda item: (places.get(item.path, len(places)), -counts[item.path]))


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep everything that a test writes in its own folder: the working folder, downloads and decoded images."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MESSI_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(autouse=True, scope="session")
def last_programs_first() -> Iterator[None]:
    """Let the interpreter run the programs of a launch from the last to the first: a GPU promises no order."""
    if not INTERPRETED or not find_spec("triton"):
        yield
        return
    from triton.runtime.interpreter import InterpreterBuilder  # noqa: PLC0415 (only CUDA builds have Triton)

    forward = InterpreterBuilder.set_grid_idx

    def backward(builder: InterpreterBuilder, *place: int) -> None:
        forward(builder, *(number - 1 - own for number, own in zip(builder.grid_dim, place, strict=True)))

    with mock.patch.object(InterpreterBuilder, "set_grid_idx", backward):
        yield


@pytest.fixture
def make_folder(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a folder domain/class/image."""

    def make(domains: tuple[str, ...] = ("photo", "sketch", "paint"), images: int = 10) -> Path:
        root = tmp_path / "images"
        for d, domain in enumerate(domains):
            for label in ("across", "upright"):
                folder = root / domain / label
                folder.mkdir(parents=True)
                for i in range(images):
                    draw(label, TINTS[domain], seed=1000 * d + i).save(folder / f"{i}.png")
        return root

    return make


@pytest.fixture
def quick_config() -> RunConfig:
    """Return a MESSI run that takes a second."""
    return RunConfig(
        data=TwoSubsets(per_domain=60),
        target=("b2",),
        training=TrainingConfig(steps=12, evaluate_every=5, log_every=2, batch_per_domain=8),
    )


_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@pytest.fixture(scope="session")
def chromium() -> str:
    """Return the path of Chromium; if it is missing, tests are skipped, except in CI, where they fail."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    reason = "No Chromium was found, so no page was opened; install it with: apt-get install chromium"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def browser(chromium: str) -> "Iterator[Browser]":
    """Start one browser for the tests of a file: Playwright runs an event loop, which would disturb other tests."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=_FLAGS)
        yield browser
        browser.close()
