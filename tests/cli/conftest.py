"""A run that the tests of several commands use."""

from pathlib import Path

import pytest
from PIL import Image

from tests.command import messi


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A MESSI run on a folder of images with two classes, red and blue, in three brightnesses."""
    root = tmp_path_factory.mktemp("trained")
    for domain, level in (("bright", 250), ("dim", 150), ("dark room", 90)):
        for label, channel in (("blue", 2), ("red", 0)):
            folder = root / "data" / domain / label
            folder.mkdir(parents=True)
            for i in range(12):
                color = tuple(level - 2 * i if c == channel else 20 for c in range(3))
                Image.new("RGB", (30 + i, 30), color).save(folder / f"{i}.jpg")
    options = ("--backbone", "tiny_cnn", "--augmentation", "none", "--steps", "60", "--evaluate-every", "30")
    done = messi(
        "train",
        "--data",
        "data",
        "--target",
        "dark room",
        "--recipe",
        "paper",
        *options,
        "--out",
        "run",
        cwd=root,
        MESSI_HOME=str(root / "home"),
    )
    assert done.returncode == 0, done.stderr
    assert "report.html" in done.stdout
    return root
