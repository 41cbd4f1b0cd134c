"""A run of images and a run of a table, and their servers."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.command import messi
from tests.conftest import TINTS, draw

from .server import Server, serving


@dataclass(frozen=True)
class Served:
    """A run, its data and its server."""

    run: Path
    data: Path
    server: Server

    @property
    def image(self) -> Path:
        return self.data / "photo" / "across" / "0.png"


@pytest.fixture(scope="session")
def image_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with ``images`` of bars in three colours and a ``run`` on them."""
    root = tmp_path_factory.mktemp("served")
    for number, (domain, tint) in enumerate(TINTS.items()):
        for label in ("across", "upright"):
            folder = root / "images" / domain / label
            folder.mkdir(parents=True)
            for i in range(30):
                draw(label, tint, seed=1000 * number + i).save(folder / f"{i}.png")
    options = ("--backbone", "tiny_cnn", "--augmentation", "none", "--steps", "40", "--evaluate-every", "20")
    done = messi(
        "train", "--data", str(root / "images"), "--target", "sketch", "--recipe", "paper", *options, "--out", "run",
        "--device", "cpu", cwd=root, MESSI_HOME=str(root / "home"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return root


@pytest.fixture(scope="session")
def images(image_run: Path) -> Iterator[Served]:
    """Serve the images, with small limits."""
    options = ("--body-bytes", "1000000", "--seconds", "5", "--queue", "256")
    with serving(image_run / "run", *options, home=image_run / "home") as server:
        yield Served(image_run / "run", image_run / "images", server)


@pytest.fixture
def client(images: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=images.server.url, timeout=30) as made:
        yield made
