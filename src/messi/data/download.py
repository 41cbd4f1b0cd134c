"""Downloads that resume after a broken connection, a full disk or a killed process.

The bytes of an incomplete file are in ``FILE.part``. ``FILE.part.json`` records the remote file and its version, so
that bytes of two versions are never combined.
"""

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from email.message import Message
from http.client import HTTPException, HTTPResponse
from io import FileIO
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from messi.core.errors import MessiError, writing
from messi.core.files import sync, write_text
from messi.core.lock import always, locked
from messi.core.text import bytes_text
from messi.data.disk import require_space

Received = Callable[[int, int | None], None]
"""Called with the bytes so far and the total (None if unknown)."""
TIMEOUT = 30.0
RESUMES, PAUSE = 3, 1.0
_CHUNK = 1 << 20
# O_NOFOLLOW: a link in the place of the file is refused. Windows lacks this flag, but requires O_BINARY.
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_AGENT = "Mozilla/5.0 (compatible; messi)"


def download(url: str, path: Path, *, size: int | None, checksum: str | None, received: Received | None = None) -> None:
    """Download a remote file to ``path``, completely or not at all.

    Args:
        url: An http or https address.
        path: The local file. If it exists with this size and checksum, nothing is downloaded.
        size: The number of bytes, if known.
        checksum: ``sha256:...`` or ``md5:...``, if known.
        received: Called after every chunk.

    """
    if not url.startswith(("https://", "http://")):
        raise MessiError(f"{url} cannot be downloaded: the address must start with https:// or http://.")
    if path.is_file() and not _difference(path, size, checksum):
        return
    with partial(path) as file:
        transfer = _Transfer(url, file, size, checksum is not None, received or _silent)
        transfer.run()
        if wrong := _difference(file.part, size, checksum):
            raise transfer.unexpected(wrong)
        file.finish()


def _difference(path: Path, size: int | None, checksum: str | None) -> str | None:
    """Return how a file differs from the expected one, or None."""
    got = path.stat().st_size
    if size is not None and got != size:
        return f"it has {got} bytes instead of {size}"
    if checksum is None:
        return None
    kind, _, expected = checksum.partition(":")
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, lambda: hashlib.new(kind, usedforsecurity=False)).hexdigest()
    return None if digest == expected.lower() else f"its checksum is {kind}:{digest} instead of {checksum}"


@dataclass(frozen=True)
class Origin:
    """The remote file that the bytes come from."""

    url: str
    version: str | None
    """Its ETag or modification date, if the server states one."""
    total: int | None
    """The number of bytes, if the server states it."""

    @classmethod
    def of(cls, url: str, response: HTTPResponse) -> "Origin":
        """Describe the file that an answer starts to send."""
        return cls(url, _version(response.headers), response.length)

    def is_continued(self, headers: Message, have: int) -> bool:
        """Return whether an answer is of the same version and starts after the ``have`` bytes that exist."""
        start, total = content_range(headers)
        same_size = None in (total, self.total) or total == self.total
        return start == have and same_size and _version(headers) in (None, self.version)


@dataclass(frozen=True)
class Partial:
    """The bytes downloaded so far for ``path``."""

    path: Path
    file: FileIO

    @property
    def part(self) -> Path:
        """The file with the bytes."""
        return _part(self.path)

    @property
    def note(self) -> Path:
        """The file with their origin."""
        return self.path.with_name(self.path.name + ".part.json")

    @property
    def have(self) -> int:
        """The number of bytes so far."""
        return os.fstat(self.file.fileno()).st_size

    def origin(self) -> Origin | None:
        """Return the origin of the bytes; None if there are no bytes or it is unknown."""
        try:
            origin = Origin(**json.loads(self.note.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None
        return origin if self.have else None

    def begin(self, origin: Origin) -> None:
        """Start over with the bytes of this origin."""
        self.clear()
        write_text(self.note, json.dumps(asdict(origin)))

    def append(self, content: bytes) -> None:
        """Append bytes."""
        rest = memoryview(content)
        with writing(self.path):
            while rest:  # a nearly full disk accepts only some of them
                rest = rest[self.file.write(rest) :]

    def clear(self) -> None:
        """Discard the bytes, also on the disk, where they must never be next to the origin of another version."""
        with writing(self.path):
            self.file.truncate(0)
            os.fsync(self.file.fileno())

    def finish(self) -> None:
        """Move the complete file to its place."""
        with writing(self.path):
            self.file.close()  # Windows moves only closed files
            sync(self.part)
            self.part.replace(self.path)
            sync(self.path.parent)
            self.note.unlink(missing_ok=True)


@contextmanager
def partial(path: Path) -> Iterator[Partial]:
    """Open the incomplete file for this process alone; remove it at the end if it has no bytes."""
    part = _part(path)
    with writing(part):
        part.parent.mkdir(parents=True, exist_ok=True)
    with locked(part, part.with_name(part.name + ".lock"), remove=always):
        with writing(part):
            file = FileIO(os.open(part, _APPEND, 0o666), "ab")
        result = Partial(path, file)
        try:
            yield result
        finally:
            file.close()
            if part.exists() and part.stat().st_size == 0:
                part.unlink()
                result.note.unlink(missing_ok=True)


def _part(path: Path) -> Path:
    return path.with_name(path.name + ".part")


def content_range(headers: Message) -> tuple[int | None, int | None]:
    """Return the first byte and the total number of bytes in ``Content-Range``, each None if it is not stated."""
    found = re.fullmatch(r"bytes (?:(\d+)-\d+|\*)/(?:(\d+)|\*)", headers.get("Content-Range", ""))
    start, total = found.groups() if found else (None, None)
    return int(start) if start else None, int(total) if total else None


def _version(headers: Message) -> str | None:
    """Return what identifies a file byte for byte: its strong ETag, or else its modification date."""
    tag = headers.get("ETag", "W/")
    return headers.get("Last-Modified") if tag.startswith("W/") else tag


class _BrokenError(Exception):
    """The connection broke; the message states why."""


@dataclass
class _Transfer:
    """The download of one file."""

    url: str
    file: Partial
    size: int | None
    checked: bool
    """Whether a checksum will reveal a mixture of two versions."""
    received: Received
    reached: bool = False
    """Whether the server has answered."""

    def run(self) -> None:
        """Request the missing bytes until the file is complete; give up after several attempts without any bytes."""
        origin = self._origin()
        whole = origin is not None and self.file.have == origin.total
        most, idle = self.file.have, 0
        while not whole:
            time.sleep(PAUSE * idle)
            reason = "the server closed it"
            try:
                whole = self._attempt()
            except _BrokenError as error:
                reason = str(error)
            idle = 0 if self.file.have > most else idle + 1
            most = max(most, self.file.have)
            if idle > RESUMES and not whole:
                broken = f"the connection broke after {bytes_text(self.file.have)} ({reason})"
                raise self._failure(broken, "repeating the command resumes the download")

    def unexpected(self, wrong: str) -> MessiError:
        """Discard the bytes and return an error that states how the file differs from the expected one."""
        self.file.clear()
        return self._failure(f"{wrong}, so it was discarded", f"repeat the command or {self._by_hand}")

    def _attempt(self) -> bool:
        """Request the missing bytes once, write them, and return whether the file is complete."""
        origin = self._origin()
        try:
            response: HTTPResponse = urlopen(self._request(origin), timeout=TIMEOUT)  # noqa: S310 (only http and https)
        except HTTPError as error:
            with error:
                if error.code == 416 and origin:
                    return self._at_the_end(error.headers)
                answer = f"the server answered {error.code} {_reason(error)}"
                raise self._failure(answer, f"try again later or {self._by_hand}") from error
        except (OSError, HTTPException) as error:
            if self.reached or not isinstance(error, URLError | TimeoutError):
                raise _BrokenError(_reason(error)) from error
            raise self._failure(_reason(error), f"check the network, try again later or {self._by_hand}") from error
        with response:
            self.reached = True
            return self._take(response, origin)

    def _origin(self) -> Origin | None:
        """Return the origin of the bytes on the disk, if more can safely be appended to them."""
        origin = self.file.origin()
        return origin if origin and origin.url == self.url and (origin.version or self.checked) else None

    def _request(self, origin: Origin | None) -> Request:
        request = Request(self.url, headers={"User-Agent": _AGENT})  # noqa: S310 (only http and https)
        if origin:
            request.add_header("Range", f"bytes={self.file.have}-")
        if origin and origin.version:
            request.add_header("If-Range", origin.version)
        return request

    def _at_the_end(self, headers: Message) -> bool:
        """Handle a server's answer that no bytes follow: the file is complete, or ours is of another version."""
        whole = content_range(headers)[1] == self.file.have
        if not whole:
            self.file.clear()
        return whole

    def _take(self, response: HTTPResponse, origin: Origin | None) -> bool:
        """Write an answer, after the existing bytes if it continues them."""
        if response.headers.get_content_type() == "text/html" and self.file.path.suffix not in (".html", ".htm"):
            raise self._failure(
                "the server sent a web page instead of the file", f"open it in a browser and {self._by_hand}"
            )
        if response.status != 206:
            origin = Origin.of(self.url, response)
            self.file.begin(origin)
        elif not (origin and origin.is_continued(response.headers, self.file.have)):
            self.file.clear()
            return False
        total = origin.total or content_range(response.headers)[1]
        if total is not None and self.size not in (None, total):
            raise self.unexpected(f"it has {total} bytes instead of {self.size}")
        return self._receive(response, total)

    def _receive(self, response: HTTPResponse, total: int | None) -> bool:
        """Write the bytes that arrive; return whether they are all that is expected."""
        have, end = self.file.have, self.size if total is None else total
        require_space(self.file.path.parent, (end or have) - have, f"The download of {self.file.path.name}")
        self.received(have, end)
        # If only we know the size, one byte more shows that the file is a different one.
        limit = None if end is None else end + (total is None)
        while limit is None or have < limit:
            chunk = _read(response, _CHUNK if limit is None else min(_CHUNK, limit - have))
            if not chunk:
                break
            self.file.append(chunk)
            have += len(chunk)
            self.received(have, end)
        return end is None or have >= end

    @property
    def _by_hand(self) -> str:
        return f"save the file as {self.file.path} yourself"

    def _failure(self, reason: str, advice: str) -> MessiError:
        return MessiError(f"{self.url} could not be downloaded: {reason}; {advice}.")


def _read(response: HTTPResponse, most: int) -> bytes:
    try:
        return response.read1(most)
    except (OSError, HTTPException) as error:
        raise _BrokenError(_reason(error)) from error


def _reason(error: Exception) -> str:
    cause = getattr(error, "reason", error)
    text = cause.strerror if isinstance(cause, OSError) and cause.strerror else str(cause)
    return " ".join(text.split()) or type(cause).__name__


def _silent(_done: int, _total: int | None) -> None:
    pass
