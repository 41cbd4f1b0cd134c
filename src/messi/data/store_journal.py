"""The journal of a store: which files were decoded, and where their pixels are.

A line is written after its pixels are on the disk, so every entry of the journal is complete. The line ends with its
own checksum and contains the checksum of the pixels. A damaged line is ignored, and its file is decoded again. Lines
written by messi 0.1 have neither checksum.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from messi.core.checksum import checksum
from messi.core.errors import MessiError, writing
from messi.core.files import open_regular, read_regular, write_bytes
from messi.data.image_files import Decoded

CHANNELS = 3
_DIGEST = re.compile("[0-9a-f]{32}")


class Entry(NamedTuple):
    """One line of the journal."""

    file: str
    offset: int
    height: int
    width: int
    size: int
    """Bytes of the image file."""
    time: int
    """Its modification time, in nanoseconds."""
    digest: str
    """Digest of its bytes."""
    checksum: str = ""
    """Checksum of the pixels; empty in lines written by messi 0.1."""

    @property
    def end(self) -> int:
        """Where the pixels end."""
        return self.offset + self.height * self.width * CHANNELS


def read_journal(folder: Path) -> dict[str, Entry]:
    """Return the last complete entry of every file; entries whose pixels did not reach the disk are ignored."""
    journal, pixels = folder / "journal", folder / "pixels"
    lines, available = b"", 0
    if journal.exists():
        with reading(journal):
            lines = read_regular(journal)
    if pixels.exists():
        with reading(pixels), open_regular(pixels) as file:
            available = os.fstat(file.fileno()).st_size
    entries = map(_read_line, lines.split(b"\n")[:-1])
    return {entry.file: entry for entry in entries if entry and entry.end <= available}


def write_journal(folder: Path, entries: Mapping[str, Entry]) -> None:
    """Rewrite the whole journal."""
    write_bytes(folder / "journal", _lines(entries.values()))


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn an operating-system error while reading a file of a store into a MessiError."""
    try:
        yield
    except OSError as error:
        raise MessiError(
            f"Could not read {path}: {error.strerror}. Make it readable, or delete its folder to have the images "
            "decoded again."
        ) from error


def _read_line(line: bytes) -> Entry | None:
    """Return the entry of a line, or None if it is damaged; after a power failure it may contain anything."""
    content, bracket, mark = line.rpartition(b"]")
    content += bracket
    if mark and mark != _mark(content):
        return None
    try:
        entry = Entry(*json.loads(content.decode()))  # decoding by json itself doubles the time
    except (TypeError, ValueError, RecursionError):
        return None
    return entry if _fits(entry) and bool(mark) == bool(entry.checksum) else None


def _fits(entry: Entry) -> bool:
    """Return whether all parts of a line have valid types and values."""
    texts, numbers = (entry.file, entry.digest, entry.checksum), entry[1:6]
    if not all(isinstance(text, str) for text in texts) or not all(type(number) is int for number in numbers):
        return False
    return entry.offset >= 0 and entry.height > 0 and entry.width > 0 and _DIGEST.fullmatch(entry.digest) is not None


def _mark(content: bytes) -> bytes:
    return f" {checksum([content])}".encode()


class Appender:
    """Appends pixels and then their journal lines, after truncating what an interrupted process left."""

    def __init__(self, folder: Path, known: dict[str, Entry]) -> None:
        self._folder, self._known = folder, known
        self._end = max((entry.end for entry in known.values()), default=0)

    def __enter__(self) -> "Appender":
        # A line whose pixels were lost must not refer to the pixels that are written in their place now.
        journal, lines = self._folder / "journal", _lines(self._known.values())
        if journal.exists() and journal.read_bytes() != lines:
            write_bytes(journal, lines)
        with writing(self._folder):
            self._pixels = (self._folder / "pixels").open("ab")
            try:
                self._journal = journal.open("ab")
            except OSError:
                self._pixels.close()
                raise
            self._pixels.truncate(self._end)
        return self

    def __exit__(self, *_: object) -> None:
        # After a failed write, closing may fail again on the rest of the buffer; the next call repeats these images.
        for file in (self._pixels, self._journal):
            try:
                file.close()
            except OSError:
                continue

    def append(self, decoded: Sequence[Decoded], present: dict[str, tuple[int, int]]) -> dict[str, Entry]:
        """Write decoded files, whose sizes and times ``present`` gives, and return the new entries."""
        entries = {}
        with writing(self._folder / "pixels"):
            for item in decoded:
                if item.pixels is None:  # the modification time changed, but not the bytes
                    size, time = present[item.file]
                    entry = self._known[item.file]._replace(size=size, time=time)
                else:
                    height, width = item.pixels.shape[:2]
                    of_pixels = checksum([item.pixels.data.cast("B")])
                    entry = Entry(item.file, self._end, height, width, *present[item.file], item.digest, of_pixels)
                    self._pixels.write(item.pixels.data)
                    self._end += item.pixels.nbytes
                entries[item.file] = entry
            self._pixels.flush()
            os.fsync(self._pixels.fileno())
            self._journal.write(_lines(entries.values()))
            self._journal.flush()
            os.fsync(self._journal.fileno())
        return entries


def _lines(entries: Iterable[Entry]) -> bytes:
    return b"".join(map(_line, entries))


def _line(entry: Entry) -> bytes:
    content = json.dumps(entry if entry.checksum else entry[:-1]).encode()
    return content + (_mark(content) if entry.checksum else b"") + b"\n"
