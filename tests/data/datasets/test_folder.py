"""Image folders as data."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from messi.core.errors import MessiError
from messi.data.datasets.folder import Folder
from messi.data.image_files import read_picture

MakeFolder = Callable[..., Path]


def test_a_folder_becomes_examples_with_sorted_names(make_folder: MakeFolder) -> None:
    root = make_folder(images=3)
    examples = Folder(path=str(root)).load()
    assert examples.domain_names == ("paint", "photo", "sketch")
    assert examples.classes == ("across", "upright")
    assert torch.equal(examples.domains * 2 + examples.labels, torch.arange(6).repeat_interleave(3))
    assert torch.equal(examples.inputs[4], read_picture(root / "paint/upright/1.png"))


def test_the_fingerprint_of_a_folder_changes_with_its_content(make_folder: MakeFolder) -> None:
    root = make_folder(images=2)
    before = Folder(path=str(root)).load().fingerprint
    assert Folder(path=str(root)).load().fingerprint == before
    (root / "photo/across/1.png").write_bytes((root / "photo/across/0.png").read_bytes())
    assert Folder(path=str(root)).load().fingerprint != before


def test_bad_folders_are_named(make_folder: MakeFolder, tmp_path: Path) -> None:
    root = make_folder(images=1)
    with pytest.raises(MessiError, match=r"no folder .*missing"):
        Folder(path=str(tmp_path / "missing")).load()
    (root / "photo/empty").mkdir()
    with pytest.raises(MessiError, match=r"class folder .*empty contains no images"):
        Folder(path=str(root)).load()
    (root / "photo/empty").rmdir()
    (root / "void").mkdir()
    with pytest.raises(MessiError, match=r"folder .*void contains no folders"):
        Folder(path=str(root)).load()
    (root / "void").rmdir()
    (root / "photo/across/0.png").write_bytes(b"no image")
    with pytest.raises(MessiError, match=r"image .*photo/across/0.png cannot be read"):
        Folder(path=str(root)).load()


def test_a_class_may_be_missing_in_a_domain(make_folder: MakeFolder) -> None:
    root = make_folder(images=2)
    for file in (root / "photo/across").iterdir():
        file.unlink()
    (root / "photo/across").rmdir()
    examples = Folder(path=str(root)).load()
    assert examples.labels[examples.domains == examples.domain_names.index("photo")].tolist() == [1, 1]
