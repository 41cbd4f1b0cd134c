"""A file that is not whole yet, kept so that a later process can go on with it.

The bytes are in ``FILE.part``. Beside it ``FILE.part.json`` says which version of which remote file they are of, so
that the rest of another version is never put behind them.
"""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from email.message import Message
from http.client import HTTPResponse
from io import FileIO
from pathlib import Path

from messi.core.files import sync, write_text, writing
from messi.data.disk import claimed


@dataclass(frozen=True)
class Origin:
    """The remote file that the bytes are of."""

    url: str
    version: str | None
    """Its ETag or date of change, if the server gives one."""
    total: int | None
    """How many bytes it has, if the server says so."""

    @classmethod
    def of(cls, url: str, response: HTTPResponse) -> "Origin":
        """Describe the file that an answer is the beginning of."""
        return cls(url, _version(response.headers), response.length)

    def is_continued(self, headers: Message, have: int) -> bool:
        """Tell whether an answer is of the same version and begins behind the bytes that we have."""
        start, total = content_range(headers)
        same_size = None in (total, self.total) or total == self.total
        return start == have and same_size and _version(headers) in (None, self.version)


@dataclass(frozen=True)
class Partial:
    """The bytes so far of what becomes ``path``."""

    path: Path
    file: FileIO

    @property
    def part(self) -> Path:
        """Where the bytes are."""
        return _part(self.path)

    @property
    def note(self) -> Path:
        """Where it is written what they are of."""
        return self.path.with_name(self.path.name + ".part.json")

    @property
    def have(self) -> int:
        """How many bytes are here."""
        return os.fstat(self.file.fileno()).st_size

    def origin(self) -> Origin | None:
        """Return what the bytes are of; None when there are none or nobody knows."""
        try:
            origin = Origin(**json.loads(self.note.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None
        return origin if self.have else None

    def begin(self, origin: Origin) -> None:
        """Start anew with the bytes of this origin."""
        self.clear()
        write_text(self.note, json.dumps(asdict(origin)))

    def append(self, content: bytes) -> None:
        """Put bytes behind the others."""
        rest = memoryview(content)
        with writing(self.path):
            while rest:  # a disk that is nearly full takes only some of them
                rest = rest[self.file.write(rest) :]

    def clear(self) -> None:
        """Throw the bytes away, on the disk too: it must never have them together with the note of another version."""
        with writing(self.path):
            self.file.truncate(0)
            os.fsync(self.file.fileno())

    def finish(self) -> None:
        """Put the file in its place."""
        with writing(self.path):
            sync(self.part)
            self.part.replace(self.path)
            sync(self.path.parent)
            self.note.unlink(missing_ok=True)


@contextmanager
def partial(path: Path) -> Iterator[Partial]:
    """Work on the part of a file that is here, alone; what is left without any bytes is removed."""
    with claimed(_part(path)) as file:
        result = Partial(path, file)
        try:
            yield result
        finally:
            if result.have == 0:
                result.part.unlink(missing_ok=True)
                result.note.unlink(missing_ok=True)


def _part(path: Path) -> Path:
    return path.with_name(path.name + ".part")


def content_range(headers: Message) -> tuple[int | None, int | None]:
    """Return the first byte and the number of all bytes in ``Content-Range``, None for what it does not say."""
    found = re.fullmatch(r"bytes (?:(\d+)-\d+|\*)/(?:(\d+)|\*)", headers.get("Content-Range", ""))
    start, total = found.groups() if found else (None, None)
    return int(start) if start else None, int(total) if total else None


def _version(headers: Message) -> str | None:
    """Return what identifies a file byte for byte: its ETag unless that is a weak one, or when it was changed."""
    tag = headers.get("ETag", "W/")
    return headers.get("Last-Modified") if tag.startswith("W/") else tag
