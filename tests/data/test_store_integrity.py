"""Damaged pixels of a store are never used for training, and ``messi data verify`` finds all damage."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from messi.cli.main import main
from messi.core.errors import MessiError
from messi.data.datasets.folder import Folder
from messi.data.images import Images
from messi.data.listing import list_folder
from messi.data.placement import _checked
from messi.data.progress import LogProgress
from messi.data.store import Store, prepare_store, store_folder
from messi.data.verify import verify
from messi.engine.config import RunConfig, TrainingConfig
from messi.engine.run import run
from messi.models.encoder import EncoderConfig

from .hangs import within

MakeFolder = Callable[..., Path]
DAMAGED = "photo/upright/0.png"


@pytest.fixture(name="root")
def _root(make_folder: MakeFolder) -> Path:
    """Return a folder of 12 images in the store."""
    root = make_folder(images=2)
    Folder(path=str(root)).load()
    return root


def store_of(root: Path) -> Store:
    return prepare_store(list_folder(root), LogProgress())


def flip(path: Path, place: int) -> None:
    """Change one bit."""
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def damage(root: Path) -> None:
    """Change a bit of the last pixel of one image."""
    entry = store_of(root).entries[DAMAGED]
    flip(store_folder(root) / "pixels", entry.end - 1)


def images(root: Path) -> Images:
    inputs = Folder(path=str(root)).load().inputs
    assert isinstance(inputs, Images)
    return inputs


SENTENCE = (
    rf"^The decoded pixels of {DAMAGED} in .* are damaged; delete that folder to have the images decoded again\.$"
)


@pytest.mark.parametrize("read", [list, Images.check, Images.stack, Images.gather, _checked])
def test_damaged_pixels_are_refused_however_they_are_read(read: Callable[[Images], object], root: Path) -> None:
    """One by one, all at once, for a batch, and before they are copied to a GPU."""
    read(images(root))
    damage(root)
    with pytest.raises(MessiError, match=SENTENCE):
        read(images(root))


def test_only_the_pixels_that_are_read_are_verified_and_only_once(root: Path) -> None:
    damage(root)
    files = list_folder(root).files
    loaded, place = images(root), files.index(DAMAGED)
    for index in range(len(files)):
        if index != place:
            assert loaded[index].shape == (3, 40, 32)
    for _ in range(2):
        with pytest.raises(MessiError, match=SENTENCE):
            loaded[place]
    pixels = loaded.pixels.clone()
    other = 0 if place else 1
    loaded.pixels[int(loaded.offsets[other])] ^= 1  # this process may change its own copy
    assert not torch.equal(loaded.pixels, pixels)
    loaded[other]


def test_a_run_does_not_train_on_damaged_pixels(root: Path, tmp_path: Path) -> None:
    damage(root)
    config = RunConfig(
        data=Folder(path=str(root)),
        target=("sketch",),
        encoder=EncoderConfig(backbone="tiny_cnn"),
        training=TrainingConfig(steps=30, evaluate_every=30, batch_per_domain=4, augmentation="none"),
    )
    with pytest.raises(MessiError, match=SENTENCE):
        run(config, out=tmp_path / "run", device="cpu")


def test_verify_names_damaged_pixels_and_has_exit_code_1(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "verify", str(root)]) == 0
    damage(root)
    capsys.readouterr()
    assert main(["data", "verify", str(root)]) == 1
    _, *found = capsys.readouterr().out.splitlines()
    assert len(found) == 1
    assert found[0].startswith(f"corrupt   The decoded pixels of {DAMAGED} in ")


def test_verify_reads_the_files_again(root: Path) -> None:
    """Otherwise, a file with other bytes but the same size and time is taken for the one that was decoded."""
    file = root / "sketch/across/1.png"
    status = file.stat()
    flip(file, status.st_size // 2)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    _, findings = verify(list_folder(root), store_of(root), None)
    text = f"{file} has changed since it was decoded; 'touch' it to have it decoded again"
    assert [(finding.kind, finding.text) for finding in findings] == [("changed", text)]


def test_no_changed_byte_of_the_journal_changes_what_is_loaded(root: Path) -> None:
    """The image of a damaged line is decoded again."""
    before = Folder(path=str(root)).load()
    journal = store_folder(root) / "journal"
    whole = journal.read_bytes()
    for place in range(0, len(whole), 11):
        content = bytearray(whole)
        content[place] ^= (1, 2, 16, 64)[place % 4]
        journal.write_bytes(content)
        after = Folder(path=str(root)).load()
        assert after.fingerprint == before.fingerprint, place
        assert all(torch.equal(*pair) for pair in zip(after.inputs, before.inputs, strict=True)), place


def test_swapped_lines_and_lines_of_another_store_give_no_other_image(root: Path) -> None:
    before = Folder(path=str(root)).load()
    journal = store_folder(root) / "journal"
    lines = [json.loads(line.rpartition(b"]")[0] + b"]") for line in journal.read_bytes().splitlines()]
    lines[0][1], lines[1][1] = lines[1][1], lines[0][1]
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
    after = Folder(path=str(root)).load()
    assert all(torch.equal(*pair) for pair in zip(after.inputs, before.inputs, strict=True))


def make_old(root: Path) -> Path:
    """Rewrite the journal in the format of messi 0.1."""
    journal = store_folder(root) / "journal"
    lines = [json.loads(line.rpartition(b"]")[0] + b"]") for line in journal.read_bytes().splitlines()]
    journal.write_text("".join(json.dumps(line[:7]) + "\n" for line in lines))
    return journal


def test_a_store_of_0_1_is_loaded_with_a_note_and_verify_adds_checksums(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = Folder(path=str(root)).load()
    journal = store_folder(root) / "journal"
    new = journal.read_bytes()
    make_old(root)
    assert caplog.text == ""
    assert Folder(path=str(root)).load().fingerprint == before.fingerprint
    assert "12 images in" in caplog.text
    assert "were decoded by messi 0.1 and have no checksums; 'messi data verify' compares them" in caplog.text
    caplog.clear()
    assert verify(list_folder(root), store_of(root), None)[1] == []
    assert journal.read_bytes() == new
    Folder(path=str(root)).load()
    assert caplog.text == ""


def test_verify_finds_damage_in_a_store_of_0_1_and_adds_no_checksum_of_it(root: Path) -> None:
    damage(root)
    make_old(root)
    _, findings = verify(list_folder(root), store_of(root), None)
    assert [finding.kind for finding in findings] == ["corrupt"]
    assert DAMAGED in findings[0].text
    assert store_of(root).without_checksum() == [DAMAGED]


@pytest.mark.parametrize(
    "line", ['["a", "0", 1, 1, 5, 5, "d"]', '["a", -9, 1, 1, 5, 5, "d"]', '["a", 0, 0, 1, 5, 5, "d"]', "[1, 2]",
             '["a", 0, 1, 1, 5, 5, "d", "no checksum of this line"]', '["a", 0, 1, 1.5, 5, 5, "d"]', "7]", "]"],
)  # fmt: skip
def test_lines_that_messi_does_not_write_are_ignored(line: str, root: Path) -> None:
    before = Folder(path=str(root)).load()
    with (store_folder(root) / "journal").open("a") as journal:
        journal.write(line + "\n")
    assert Folder(path=str(root)).load().fingerprint == before.fingerprint


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("name", ["journal", "pixels"])
def test_a_store_of_pipes_gives_one_sentence(name: str, alone: bool, root: Path) -> None:
    path = store_folder(root) / name
    if alone:
        for file in path.parent.iterdir():
            file.unlink()
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    with (
        within(60),
        pytest.raises(MessiError, match=rf"{name}: it is a named pipe, not a regular file\. Make it readable"),
    ):
        Folder(path=str(root)).load()
