"""Images are decoded once, even if processes die or the disk is full."""

import csv
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image

from messi.core.errors import MessiError
from messi.data import image_files, store
from messi.data.datasets.folder import Folder
from messi.data.datasets.table import Table
from messi.data.image_files import LONGEST_SIDE, read_picture
from messi.data.listing import list_folder, make_listing
from messi.data.progress import LogProgress
from messi.data.store import Store, prepare_store, store_folder
from messi.data.store_journal import read_journal

DRIVER = Path(__file__).with_name("store_driver.py")
SIZES = ((40, 32), (500, 200), (90, 400), (1, 1), (33, 7))
NUMBER = 20


class Seen(LogProgress):
    """Counts the images that are decoded."""

    decoded = 0

    def __init__(self) -> None:
        self.announced: list[int | None] = []
        self.notes: list[str] = []

    def started(self, text: str, total: int | None) -> None:  # noqa: ARG002 (the protocol's)
        self.announced.append(total)

    def advanced(self, number: int) -> None:
        self.decoded += number

    def noted(self, text: str) -> None:
        self.notes.append(text)


def paint(path: Path, size: tuple[int, int], seed: int) -> None:
    """Write an image of noise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(noise).save(path)


@pytest.fixture(name="root")
def _root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """20 images of five sizes in three formats, decoded in chunks of four."""
    monkeypatch.setattr(image_files, "_CHUNK", 4)
    root = tmp_path / "images"
    for number in range(NUMBER):
        place = root / "ab"[number // 10] / ("cat", "dog")[number // 5 % 2]
        paint(place / f"{number:02}.{('png', 'jpg', 'bmp')[number % 3]}", SIZES[number % 5], number)
    return root


def prepared(root: Path, decodes: int | None = None) -> Store:
    """Prepare a folder; check the content of the store and the number of decoded images."""
    progress, listing = Seen(), list_folder(root)
    done = prepare_store(listing, progress)
    for file, picture in zip(listing.files, done.images(listing.files), strict=True):
        assert torch.equal(picture, read_picture(root / file)), file
    assert decodes in (None, progress.decoded)
    return done


def content(root: Path, home: Path | None = None) -> dict[str, bytes]:
    """Return the whole content of a store."""
    folder = home / "stores" / store_folder(root).name if home else store_folder(root)
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


class Row(NamedTuple):
    """A line of index.csv."""

    domain: str
    label: str
    file: str
    offset: str
    height: str
    width: str


def index(folder: Path) -> list[Row]:
    with (folder / "index.csv").open(newline="", encoding="utf-8", errors="surrogateescape") as file:
        header, *rows = csv.reader(file)
    assert header == ["domain", "class", "file", "offset", "height", "width"]
    return [Row(*row) for row in rows]


def test_every_image_is_decoded_once_and_equals_read_picture(root: Path) -> None:
    prepared(root, decodes=NUMBER)
    before = content(root)
    prepared(root, decodes=0)
    assert content(root) == before


def test_images_keep_their_aspect_ratio_and_are_at_most_320_pixels_long(root: Path) -> None:
    done = prepared(root)
    assert LONGEST_SIDE == 320
    sizes = {(entry.width, entry.height) for entry in done.entries.values()}
    assert sizes == {(40, 32), (320, 128), (72, 320), (1, 1), (33, 7)}


@pytest.mark.parametrize("what", ["content", "size", "time"])
def test_only_a_changed_file_is_decoded_again(root: Path, what: str) -> None:
    """An uncompressed BMP changes its bytes but not its size; a PNG changes its size but keeps the old time."""
    file = root / ("a/cat/02.bmp" if what != "size" else "a/cat/03.png")
    before = prepared(root)
    status = file.stat()
    if what == "content":
        paint(file, SIZES[2], seed=1000)
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
        assert file.stat().st_size == status.st_size
    elif what == "size":
        paint(file, (17, 19), seed=1000)
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    else:
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns - 10**9))
    after = prepared(root, decodes=1)
    name = str(file.relative_to(root))
    assert {n for n in after.entries if after.entries[n] != before.entries[n]} == {name}
    assert (after.entries[name].digest != before.entries[name].digest) == (what != "time")
    prepared(root, decodes=0)


def test_a_touched_file_with_the_same_bytes_adds_no_pixels(root: Path) -> None:
    before = prepared(root)
    pixels = content(root)["pixels"]
    for file in (root / "a/cat").iterdir():
        os.utime(file, ns=(0, 0))
    after = prepared(root, decodes=5)
    assert content(root)["pixels"] == pixels
    assert {f: e.offset for f, e in after.entries.items()} == {f: e.offset for f, e in before.entries.items()}
    prepared(root, decodes=0)


def test_a_new_and_a_removed_file_are_noticed(root: Path) -> None:
    prepared(root)
    paint(root / "b/dog/0new.png", (50, 20), seed=77)
    assert "b/dog/0new.png" in prepared(root, decodes=1).entries
    (root / "a/cat/00.png").unlink()
    done = prepared(root, decodes=0)
    assert "a/cat/00.png" not in done.entries
    assert tuple(row.file for row in index(done.folder)) == list_folder(root).files


def test_a_file_damaged_later_is_not_read_from_the_store(root: Path) -> None:
    prepared(root)
    (root / "a/cat/00.png").write_bytes(b"damaged")
    with pytest.raises(MessiError, match=r"a/cat/00\.png cannot be read"):
        Folder(path=str(root)).load()
    assert len(Folder(path=str(root), damaged="leave_out").load()) == NUMBER - 1


class Child:
    """The driver, which waits after every line."""

    def __init__(self, root: Path) -> None:
        command = [sys.executable, str(DRIVER), str(root)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def answer(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def read_until(self, line: str, times: int = 1) -> None:
        """Let the process continue until it has printed a line, and leave it waiting there."""
        while times:
            said = self.read()
            assert said, f"it ended before it printed '{line}'"
            times -= said == line
            if times:
                self.answer()

    def finish(self) -> list[str]:
        """Let the process continue, and return the rest of its output."""
        rest, _ = self.process.communicate()
        assert self.process.returncode == 0
        return rest.splitlines()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()
        assert self.process.returncode == -signal.SIGKILL


@contextmanager
def child(root: Path) -> Iterator[Child]:
    started = Child(root)
    try:
        yield started
    finally:
        started.process.kill()
        started.process.communicate()


@pytest.mark.parametrize("chunks", [1, 4])
def test_a_killed_process_loses_no_image_that_it_reported(root: Path, chunks: int) -> None:
    prepared(root)
    undisturbed = content(root)
    shutil.rmtree(store_folder(root))
    with child(root) as first, child(root) as second:
        first.read_until("advanced 4", times=chunks)
        first.kill()
        rest = 5 - chunks
        assert second.finish() == ["asks", f"started {4 * rest}", *["advanced 4"] * rest, f"done {NUMBER}"]
    assert content(root) == undisturbed


def test_a_process_may_die_at_any_fsync(root: Path, tmp_path: Path) -> None:
    """One process dies at its first fsync, the next at its second and so on; another one then completes each store."""
    prepared(root)
    undisturbed = content(root)
    command = [sys.executable, str(DRIVER), str(root), str(tmp_path / "homes")]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    moments = [json.loads(line) for line in said.splitlines()]
    assert len(moments) >= 2 * 5, "pixels and journal are synced for each of the five chunks"
    assert [m["kept"] for m in moments][-1] == NUMBER, "the last ones die when only the index is missing"
    for moment in moments:
        assert moment["decoded"] == NUMBER - moment["kept"], moment
        assert content(root, tmp_path / "homes" / str(moment["sync"])) == undisturbed, moment


def test_an_unfinished_store_is_not_taken_for_a_complete_one(root: Path) -> None:
    """A second process waits for the first, then finds everything done; meanwhile the journal lists complete images."""
    with child(root) as first, child(root) as second:
        first.read_until("advanced 4", times=2)
        folder = store_folder(root)
        known = read_journal(folder)
        assert len(known) == 8
        half = make_listing(root, [(file, "a", "cat") for file in known])
        progress = Seen()
        pictures = prepare_store(half, progress).images(half.files)
        assert progress.decoded == 0, "complete images can be read without waiting"
        for picture, file in zip(pictures, known, strict=True):
            assert torch.equal(picture, read_picture(root / file))
        second.read_until("asks")
        first.finish()
        assert second.finish() == [f"done {NUMBER}"]
    prepared(root, decodes=0)


def test_a_process_that_waits_takes_over_when_the_other_dies(root: Path) -> None:
    with child(root) as first, child(root) as second:
        first.read_until("advanced 4", times=3)
        second.read_until("asks")
        first.kill()
        assert second.finish() == ["started 8", "advanced 4", "advanced 4", f"done {NUMBER}"]
    prepared(root, decodes=0)


@pytest.mark.parametrize("part", [0.0, 0.05, 0.5, 0.999])
def test_a_partial_journal_line_costs_one_image(root: Path, part: float) -> None:
    """A partial last line is ignored, even if only the line break is missing."""
    before = prepared(root)
    journal = before.folder / "journal"
    *lines, last, _ = journal.read_bytes().split(b"\n")
    journal.write_bytes(b"\n".join([*lines, last[: round(part * len(last))]]))
    assert prepared(root, decodes=1).entries == before.entries


@pytest.mark.parametrize("garbage", [b"\0" * 100 + b"\n", b"{}\n", b"[1, 2]\n", b"\xff\n"])
def test_journal_lines_lost_by_the_disk_are_ignored(root: Path, garbage: bytes) -> None:
    """After a power failure a block of a file may be zeros or have its earlier content."""
    before = prepared(root)
    journal = before.folder / "journal"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([*lines[:7], garbage, *lines[9:]]))
    assert prepared(root, decodes=2).entries.keys() == before.entries.keys()


def test_pixels_lost_by_the_disk_are_decoded_again(root: Path) -> None:
    before = prepared(root)
    entries = sorted(before.entries.values(), key=lambda entry: entry.end)
    os.truncate(before.folder / "pixels", entries[-4].end - 1)
    assert prepared(root, decodes=4).entries == before.entries


def test_lost_pixels_are_not_confused_with_those_written_in_their_place(root: Path) -> None:
    """The journal lists an image whose pixels were lost; another image is decoded in their place first."""
    before = prepared(root)
    lost = max(before.entries.values(), key=lambda entry: entry.end)
    os.truncate(before.folder / "pixels", lost.offset)
    paint(root / "a/cat/new.bmp", (lost.width, lost.height), seed=1000)
    new = make_listing(root, [("a/cat/new.bmp", "a", "cat")])
    prepare_store(new, LogProgress())
    prepared(root, decodes=1)


def test_a_journal_without_pixels_is_ignored(root: Path) -> None:
    done = prepared(root)
    (done.folder / "pixels").unlink()
    prepare_store(make_listing(root, [("b/cat/11.bmp", "b", "cat")]), LogProgress())
    prepared(root, decodes=NUMBER - 1)


def mount(place: Path, options: str) -> None:
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("needs a file system of its own, and mounting is not permitted")


@pytest.fixture(name="disk")
def _disk(home: Path) -> Iterator[Path]:
    """MESSI_HOME on a disk of half a megabyte, too small for the images."""
    home.mkdir()
    mount(home, "size=512k")
    yield home
    subprocess.run(["umount", "--lazy", str(home)], check=True)


def test_a_full_disk_loses_nothing_and_the_same_call_continues_with_more_space(
    root: Path, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "require_space", lambda *_, **__: None)  # others fill the disk in the meantime
    progress, listing = Seen(), list_folder(root)
    with pytest.raises(MessiError, match=r"^Could not write .*pixels: No space left on device\. [^.]*intact; .*\.$"):
        prepare_store(listing, progress)
    assert 0 < progress.decoded < NUMBER
    with pytest.raises(MessiError, match="No space left"):
        prepare_store(listing, Seen())
    subprocess.run(["mount", "-o", "remount,size=16m", str(disk)], check=True)
    prepared(root, decodes=NUMBER - progress.decoded)


@pytest.mark.parametrize("sync", [1, 2, 3, 10, 11, 12])
def test_a_disk_that_is_full_at_any_sync_loses_nothing(root: Path, sync: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Network file systems report a full disk only at a sync; there are two for each chunk and two for the index."""
    real, calls = os.fsync, iter(range(1, 10_000))

    def fsync(handle: int) -> None:
        if next(calls) == sync:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    progress = Seen()
    with pytest.raises(MessiError, match="No space left on device"):
        prepare_store(list_folder(root), progress)
    done = prepared(root)
    assert len(index(done.folder)) == NUMBER


def test_too_little_space_is_reported_before_anything_is_decoded(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The 20 images take 4 * (40 * 32 + 320 * 128 + 72 * 320 + 1 + 33 * 7) * 3 bytes, all of which are sampled."""
    needed = 4 * (40 * 32 + 320 * 128 + 72 * 320 + 1 + 33 * 7) * 3
    real, progress = shutil.disk_usage(root), Seen()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: real._replace(free=needed - 1))
    with pytest.raises(
        MessiError,
        match=r"^Decoding the images requires 7\d\d kB, but the disk of .* free; free some space or set MESSI_HOME to",
    ):
        prepare_store(list_folder(root), progress)
    assert progress.announced == []
    monkeypatch.setattr(shutil, "disk_usage", lambda _: real._replace(free=needed))
    prepared(root, decodes=NUMBER)


def test_a_complete_store_may_be_read_only(root: Path, disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=16m", str(disk)], check=True)
    before = prepared(root)
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    assert prepared(root, decodes=0).entries == before.entries
    (root / "a/cat/00.png").unlink()
    prepared(root, decodes=0)
    paint(root / "a/cat/00.png", (5, 5), seed=1000)
    with pytest.raises(MessiError, match=r"^Could not write .*: Read-only file system\."):
        prepare_store(list_folder(root), LogProgress())


def test_other_programs_can_locate_every_image_by_the_index(root: Path) -> None:
    folder = prepared(root).folder
    pixels = np.fromfile(folder / "pixels", np.uint8)
    rows, listing = index(folder), list_folder(root)
    assert tuple(row.file for row in rows) == listing.files
    for row in rows:
        assert row.file.split("/")[:2] == [row.domain, row.label]
        offset, height, width = int(row.offset), int(row.height), int(row.width)
        picture = pixels[offset : offset + height * width * 3].reshape(height, width, 3)
        assert np.array_equal(picture, read_picture(root / row.file).permute(1, 2, 0).numpy())


def test_a_lost_index_is_written_again(root: Path) -> None:
    folder = prepared(root).folder
    before = content(root)
    (folder / "index.csv").unlink()
    prepared(root, decodes=0)
    assert content(root) == before


def test_the_fingerprint_changes_with_content_name_label_domain_and_order(root: Path) -> None:
    rows = [("a/cat/00.png", "a", "cat"), ("a/cat/01.jpg", "a", "dog"), ("b/dog/19.jpg", "b", "cat")]
    changes: dict[str, Callable[[], list[tuple[str, str, str]]]] = {
        "nothing": lambda: rows,
        "a class": lambda: [*rows[:2], ("b/dog/19.jpg", "b", "dog")],
        "a domain": lambda: [*rows[:2], ("b/dog/19.jpg", "a", "cat")],
        "the order": lambda: rows[::-1],
        "one less": lambda: rows[:2],
        "a class's name": lambda: [(file, domain, label.upper()) for file, domain, label in rows],
        "a file's name": lambda: [("a/cat/00copy.png", "a", "cat"), *rows[1:]],
        "a file's bytes": lambda: rows,
    }
    shutil.copy2(root / "a/cat/00.png", root / "a/cat/00copy.png")
    seen = {}
    for what, change in changes.items():
        if what == "a file's bytes":
            paint(root / "a/cat/00.png", SIZES[1], seed=1000)
        listing = make_listing(root, change())
        seen[what] = prepare_store(listing, LogProgress()).fingerprint(listing)
    assert len(set(seen.values())) == len(changes)
    parts = make_listing(root, rows, parts=["train", "val", "test"])
    assert prepare_store(parts, LogProgress()).fingerprint(parts) not in seen.values()


def test_the_fingerprint_does_not_depend_on_path_and_time(root: Path, tmp_path: Path) -> None:
    first = Folder(path=str(root)).load().fingerprint
    shutil.copytree(root, tmp_path / "copy", copy_function=shutil.copyfile)
    assert Folder(path=str(tmp_path / "copy")).load().fingerprint == first


def test_two_tables_under_one_root_share_a_store(root: Path) -> None:
    files = list_folder(root).files
    for name, chosen in (("first", files[:12]), ("second", files[8:])):
        lines = ["path,domain,label", *(f"{file},here,{name}" for file in chosen)]
        (root / f"{name}.csv").write_text("\n".join(lines))
    decoded = []
    for name in ("first", "second", "first", "second"):
        progress = Seen()
        examples = Table(path=str(root / f"{name}.csv")).load(progress)
        decoded.append(progress.decoded)
        chosen = files[:12] if name == "first" else files[8:]
        assert all(
            torch.equal(picture, read_picture(root / file))
            for picture, file in zip(examples.inputs, chosen, strict=True)
        )
        assert {row.label for row in index(store_folder(root))} == {name}, (
            "the index belongs to the table that was loaded last"
        )
    assert decoded == [12, 8, 0, 0]


def test_a_folder_has_one_store_for_all_its_paths(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "link").symlink_to(root)
    prepared(root, decodes=NUMBER)
    prepared(tmp_path / "link", decodes=0)
    monkeypatch.chdir(root)
    prepared(Path(), decodes=0)
    assert len(list(store_folder(root).parent.iterdir())) == 1


def test_folders_of_the_same_name_have_separate_stores(root: Path, tmp_path: Path) -> None:
    shutil.copytree(root, tmp_path / "other" / root.name)
    prepared(root, decodes=NUMBER)
    prepared(tmp_path / "other" / root.name, decodes=NUMBER)


def test_names_that_are_not_utf8_can_be_stored_and_loaded(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux allows any bytes in names: of files, of the folder and of MESSI_HOME."""
    odd = os.fsdecode(b"caf\xe9 \xff\n")
    monkeypatch.setenv("MESSI_HOME", str(tmp_path / f"home {odd}"))
    place = root.rename(tmp_path / odd)
    (place / "a/cat/00.png").rename(place / "a/cat" / f"{odd}.png")
    (place / "a/dog").rename(place / "a" / odd)
    done = prepared(place, decodes=NUMBER)
    prepared(place, decodes=0)
    assert f"a/cat/{odd}.png" in done.entries
    assert {row.file for row in index(done.folder)} == set(list_folder(place).files)
    assert len(done.fingerprint(list_folder(place))) == 64
