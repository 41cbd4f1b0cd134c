"""Downloads that go on where they were: after a broken connection, a full disk or a killed process."""

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from email.message import Message
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from messi.core.errors import MessiError
from messi.data.disk import amount, require_room
from messi.data.partial_download import Origin, Partial, content_range, partial

Progress = Callable[[int, int | None], None]
TIMEOUT = 30.0
RESUMES, PAUSE = 3, 1.0
_CHUNK = 1 << 20
_AGENT = "Mozilla/5.0 (compatible; messi)"


def download(url: str, path: Path, *, size: int | None, checksum: str | None, progress: Progress | None = None) -> None:
    """Bring a remote file to ``path``, whole or not at all.

    Args:
        url: Where it is, with http or https.
        path: Where it goes. If a file with this size and checksum is there already, nothing is done.
        size: How many bytes it has, if known.
        checksum: ``sha256:...`` or ``md5:...``, if known.
        progress: Called with the bytes so far and in all (None where unknown).

    """
    if not url.startswith(("https://", "http://")):
        raise MessiError(f"{url} cannot be downloaded: an address must begin with https:// or http://.")
    if path.is_file() and not _difference(path, size, checksum):
        return
    with partial(path) as file:
        transfer = _Transfer(url, file, size, checksum is not None, progress or _silent)
        transfer.run()
        if wrong := _difference(file.part, size, checksum):
            raise transfer.unexpected(wrong)
        file.finish()


def _difference(path: Path, size: int | None, checksum: str | None) -> str | None:
    """Say in what a file is not the expected one."""
    got = path.stat().st_size
    if size is not None and got != size:
        return f"it has {got} bytes instead of {size}"
    if checksum is None:
        return None
    kind, _, expected = checksum.partition(":")
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, lambda: hashlib.new(kind, usedforsecurity=False)).hexdigest()
    return None if digest == expected.lower() else f"its checksum is {kind}:{digest} instead of {checksum}"


class _BrokenError(Exception):
    """The connection broke, and why."""


@dataclass
class _Transfer:
    """One file on its way."""

    url: str
    file: Partial
    size: int | None
    checked: bool
    """Whether a checksum will tell if bytes of two versions were put together."""
    progress: Progress
    reached: bool = False
    """Whether the server has answered."""

    def run(self) -> None:
        """Ask for the missing bytes until all are here; give up after a few tries that bring none."""
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
                broken = f"the connection broke after {amount(self.file.have)} ({reason})"
                raise self._failure(broken, "the same command goes on from there")

    def unexpected(self, wrong: str) -> MessiError:
        """Throw away what came and say in what it is not the expected file."""
        self.file.clear()
        return self._failure(f"{wrong}, so it is not kept", f"run the same command again or {self._by_hand}")

    def _attempt(self) -> bool:
        """Ask once for what is missing, take it in and tell whether the file is whole now."""
        origin = self._origin()
        try:
            response: HTTPResponse = urlopen(self._request(origin), timeout=TIMEOUT)  # noqa: S310 (http alone)
        except HTTPError as error:
            with error:
                if error.code == 416 and origin:
                    return self._at_the_end(error.headers)
                answer = f"the server answers {error.code} {_reason(error)}"
                raise self._failure(answer, f"try again later or {self._by_hand}") from error
        except (OSError, HTTPException) as error:
            if self.reached or not isinstance(error, URLError | TimeoutError):
                raise _BrokenError(_reason(error)) from error
            raise self._failure(_reason(error), f"check the network, try again later or {self._by_hand}") from error
        with response:
            self.reached = True
            return self._take(response, origin)

    def _origin(self) -> Origin | None:
        """Return what the bytes on the disk are of, if more can safely be put behind them."""
        origin = self.file.origin()
        return origin if origin and origin.url == self.url and (origin.version or self.checked) else None

    def _request(self, origin: Origin | None) -> Request:
        request = Request(self.url, headers={"User-Agent": _AGENT})  # noqa: S310 (http alone)
        if origin:
            request.add_header("Range", f"bytes={self.file.have}-")
        if origin and origin.version:
            request.add_header("If-Range", origin.version)
        return request

    def _at_the_end(self, headers: Message) -> bool:
        """Handle the answer that nothing lies behind our bytes: they are all there is, or of another file."""
        whole = content_range(headers)[1] == self.file.have
        if not whole:
            self.file.clear()
        return whole

    def _take(self, response: HTTPResponse, origin: Origin | None) -> bool:
        """Take in an answer, behind the bytes that are here if it continues them."""
        if response.headers.get_content_type() == "text/html" and self.file.path.suffix not in (".html", ".htm"):
            raise self._failure("a web page came instead of the file", f"open it in a browser and {self._by_hand}")
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
        """Write what comes; tell whether it is as much as is expected."""
        have, end = self.file.have, self.size if total is None else total
        require_room(self.file.path.parent, (end or have) - have, f"The download of {self.file.path.name}")
        self.progress(have, end)
        # Where only we know the size, one byte more than that is enough to see that the file is another.
        limit = None if end is None else end + (total is None)
        while limit is None or have < limit:
            chunk = _read(response, _CHUNK if limit is None else min(_CHUNK, limit - have))
            if not chunk:
                break
            self.file.append(chunk)
            have += len(chunk)
            self.progress(have, end)
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
