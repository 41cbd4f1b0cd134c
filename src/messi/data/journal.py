"""The journal of a store: which files were decoded, and where their pixels are.

A line is written after its pixels are on the disk, so whatever the journal says is whole.
"""

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from messi.core.files import write_bytes, writing
from messi.data.decode import Decoded

CHANNELS = 3


class Entry(NamedTuple):
    """One line of the journal."""

    file: str
    offset: int
    height: int
    width: int
    size: int
    """Bytes of the source file."""
    time: int
    """When it was last changed, in nanoseconds."""
    digest: str
    """Of its bytes."""

    @property
    def end(self) -> int:
        """Where the pixels end."""
        return self.offset + self.height * self.width * CHANNELS


def read_journal(folder: Path) -> dict[str, Entry]:
    """Return the last whole entry of every file; pixels that did not reach the disk do not count."""
    journal, pixels = folder / "journal", folder / "pixels"
    if not journal.exists() or not pixels.exists():
        return {}
    available = pixels.stat().st_size
    entries = map(_read_line, journal.read_bytes().split(b"\n")[:-1])
    return {entry.file: entry for entry in entries if entry and entry.end <= available}


def _read_line(line: bytes) -> Entry | None:
    """Return what a line of the journal says; after a power failure it may hold anything."""
    try:
        return Entry(*json.loads(line))
    except (TypeError, ValueError):
        return None


class Appender:
    """Appends pixels and then their journal lines; what an interrupted one left behind is cut off first."""

    def __init__(self, folder: Path, known: dict[str, Entry]) -> None:
        self._folder, self._known = folder, known
        self._end = max((entry.end for entry in known.values()), default=0)

    def __enter__(self) -> "Appender":
        # A line whose pixels were lost must not come to mean those that are written in their place now.
        journal, lines = self._folder / "journal", _lines(self._known.values())
        if journal.exists() and journal.read_bytes() != lines:
            write_bytes(journal, lines)
        with writing(self._folder):
            self._pixels, self._journal = (self._folder / "pixels").open("ab"), journal.open("ab")
            self._pixels.truncate(self._end)
        return self

    def __exit__(self, *_: object) -> None:
        # What a failed write left in a buffer is redone by the next call, and must not fail once more here.
        for file in (self._pixels, self._journal):
            try:
                file.close()
            except OSError:
                continue

    def append(self, decoded: Sequence[Decoded], present: dict[str, tuple[int, int]]) -> dict[str, Entry]:
        """Write what was decoded of files of a size and time, and return the new entries."""
        entries = {}
        with writing(self._folder / "pixels"):
            for item in decoded:
                if item.pixels is None:  # the file was touched, but its bytes are those decoded before
                    old = self._known[item.file]
                    offset, height, width = old.offset, old.height, old.width
                else:
                    offset, (height, width) = self._end, item.pixels.shape[:2]
                    self._pixels.write(item.pixels.data)
                    self._end += item.pixels.nbytes
                entries[item.file] = Entry(item.file, offset, height, width, *present[item.file], item.digest)
            self._pixels.flush()
            os.fsync(self._pixels.fileno())
            self._journal.write(_lines(entries.values()))
            self._journal.flush()
            os.fsync(self._journal.fileno())
        return entries


def _lines(entries: Iterable[Entry]) -> bytes:
    return "".join(json.dumps(entry) + "\n" for entry in entries).encode()
