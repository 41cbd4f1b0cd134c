"""Special and oversized files are refused by name at once: reading a pipe may block, and a device never ends."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from messi.cli.main import main
from messi.core.errors import MessiError
from messi.core.files import open_regular, read_regular
from messi.data import image_files
from messi.data.datasets.arrays import Arrays
from messi.data.datasets.common.digits import load_digits
from messi.data.datasets.folder import Folder
from messi.data.datasets.table import Table
from messi.data.image_files import MOST_BYTES, MOST_PIXELS, read_picture
from messi.data.threads import Budget

from .hangs import within

MakeFolder = Callable[..., Path]


@pytest.fixture(autouse=True)
def _alarm() -> Iterator[None]:
    with within(60):
        yield


def make_special(path: Path, kind: str) -> None:
    if kind == "a named pipe":
        os.mkfifo(path)
    elif kind == "a socket":
        place = Path.cwd()
        os.chdir(path.parent)  # an address has at most 108 characters
        try:
            with socket.socket(socket.AF_UNIX) as opened:
                opened.bind(path.name)
        finally:
            os.chdir(place)
    else:
        path.symlink_to("/dev/zero")


KINDS = ("a named pipe", "a socket", "a device")


@pytest.mark.parametrize("kind", KINDS)
def test_a_special_file_among_images_is_refused_or_left_out_by_name(
    kind: str, make_folder: MakeFolder, caplog: pytest.LogCaptureFixture
) -> None:
    root = make_folder(images=1)
    make_special(root / "photo/across/zz.png", kind)
    sentence = rf"^The image {root}/photo/across/zz\.png cannot be read: it is {kind}, not a regular file\. Replace"
    with pytest.raises(MessiError, match=sentence):
        Folder(path=str(root)).load()
    assert len(Folder(path=str(root), damaged="leave_out").load()) == 6
    assert "1 of 7 images cannot be read and are left out: photo/across/zz.png." in caplog.text
    with pytest.raises(MessiError, match=sentence):
        read_picture(root / "photo/across/zz.png")


@pytest.mark.parametrize("command", ["show", "prepare", "verify", "train"])
def test_no_command_waits_for_a_pipe(command: str, make_folder: MakeFolder, capsys: pytest.CaptureFixture[str]) -> None:
    root = make_folder(images=1)
    make_special(root / "photo/across/zz.png", "a named pipe")
    code = main(["train", "--data", str(root)] if command == "train" else ["data", command, str(root)])
    said = capsys.readouterr()
    assert code == (1 if command == "verify" else 2)
    assert "zz.png cannot be read: it is a named pipe, not a regular file." in said.out + said.err


@pytest.mark.parametrize("kind", KINDS)
def test_tables_and_arrays_must_be_regular_files(kind: str, tmp_path: Path) -> None:
    reason = rf"cannot be read.*: it is {kind}, not a regular file"
    kinds: tuple[tuple[str, type[Table] | type[Arrays]], ...] = (
        ("t.csv", Table),
        ("t.tsv", Table),
        ("t.parquet", Table),
        ("a.npz", Arrays),
    )
    for name, data in kinds:
        make_special(tmp_path / name, kind)
        with pytest.raises(MessiError, match=rf"{name} {reason}"):
            data(path=str(tmp_path / name)).load()
    for name in ("train-images-idx3-ubyte", "t10k-images-idx3-ubyte", "train-labels-idx1-ubyte"):
        (tmp_path / name).write_bytes(bytes([0, 0, 8, 3]) + bytes(12))
    make_special(tmp_path / "train-images-idx3-ubyte.gz", kind)
    (tmp_path / "train-images-idx3-ubyte").unlink()
    with pytest.raises(MessiError, match=rf"train-images-idx3-ubyte\.gz {reason}"):
        load_digits(str(tmp_path))


def test_a_file_that_becomes_a_pipe_after_the_check_does_not_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"content")
    assert read_regular(tmp_path / "file") == b"content"
    status = (tmp_path / "file").stat()
    make_special(tmp_path / "pipe", "a named pipe")
    monkeypatch.setattr(Path, "stat", lambda *_, **__: status)
    with pytest.raises(OSError, match="a named pipe, not a regular file"):
        open_regular(tmp_path / "pipe")


def test_an_image_above_the_limit_is_refused_by_its_header_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A PNG of one colour is a small file, however much memory its pixels take."""
    monkeypatch.setattr(image_files, "to_tensor", lambda *_, **__: pytest.fail("It was decoded."))
    Image.new("1", (10_001, 10_000)).save(tmp_path / "large.png")
    sentence = (
        rf"^The image {tmp_path}/large\.png cannot be read: its 10,001 x 10,000 pixels exceed the limit of "
        r"100,000,000; make it smaller\. Replace or remove it\.$"
    )
    with pytest.raises(MessiError, match=sentence):
        read_picture(tmp_path / "large.png")
    assert MOST_PIXELS == 10_000 * 10_000


@pytest.mark.parametrize(("progressive", "accepted"), [(False, True), (True, False)])
def test_the_limit_applies_to_the_decoded_size(
    progressive: bool, accepted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A JPEG is decoded at a fraction of its size, but a progressive one is first in memory at full size."""
    Image.new("RGB", (4000, 3000)).save(tmp_path / "photo.jpg", progressive=progressive)
    monkeypatch.setattr(image_files, "MOST_PIXELS", 1_000_000)
    if accepted:
        assert read_picture(tmp_path / "photo.jpg").shape == (3, 240, 320)
    else:
        with pytest.raises(MessiError, match="its 4,000 x 3,000 pixels exceed the limit of 1,000,000"):
            read_picture(tmp_path / "photo.jpg")


def test_a_file_above_the_limit_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is sparse: it takes no space on the disk, but its zeros would in memory."""
    path = tmp_path / "huge.png"
    path.touch()
    os.truncate(path, MOST_BYTES + 1)
    monkeypatch.setattr(Image, "open", lambda *_, **__: pytest.fail("It was opened."))
    with pytest.raises(MessiError, match=r"huge\.png cannot be read: its 1 GB exceed the limit of 1 GB; make it small"):
        read_picture(path)


def test_threads_together_stay_within_the_memory() -> None:
    room, lock, used, most = Budget(10), threading.Lock(), 0, 0
    amounts = [int(amount) for amount in np.random.default_rng(0).integers(1, 11, 200)]

    def work(share: list[int]) -> None:
        nonlocal used, most
        for amount in share:
            with room.taken(amount):
                with lock:
                    used += amount
                    most = max(most, used)
                with lock:
                    used -= amount

    threads = [threading.Thread(target=work, args=(amounts[start::8],)) for start in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (used, 0 < most <= 10) == (0, True)


def test_no_other_program_is_started_for_an_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow passes PostScript, which is a programming language, to Ghostscript."""
    import subprocess  # noqa: PLC0415

    Image.new("RGB", (8, 8)).save(tmp_path / "drawing.eps")
    (tmp_path / "drawing.eps").rename(tmp_path / "drawing.png")
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("It was started."))
    with pytest.raises(MessiError, match=r"drawing\.png cannot be read: it is damaged or not an image"):
        read_picture(tmp_path / "drawing.png")
