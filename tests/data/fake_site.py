"""A real HTTP server in this process for one file; a test makes it break off, send false headers or change the file."""

import contextlib
import hashlib
import http.server
import re
import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from messi.data.download import download

CONTENT = hashlib.shake_256(b"first").digest(3_000_000)
OTHER = hashlib.shake_256(b"second").digest(3_000_000)


def sha256(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def md5(content: bytes) -> str:
    return "md5:" + hashlib.md5(content, usedforsecurity=False).hexdigest()


@dataclass
class Site:
    """One remote file, and how the server misbehaves."""

    content: bytes = CONTENT
    headers: dict[str, str] = field(default_factory=lambda: {"ETag": '"first"'})
    ranges: bool = True
    heeds_if_range: bool = True
    announces: int | None = None
    """A false Content-Length; -1 for none."""
    chunked: bool = False
    """Whether the whole file is sent as one HTTP chunk instead."""
    misses: int = 0
    """How many bytes after (or, if negative, before) the requested byte a response begins."""
    status: int = 200
    cuts: list[int] = field(default_factory=list)
    """After how many bytes each response breaks off; later responses are complete."""
    resets: bool = False
    """Whether a response breaks off by a connection reset instead of an orderly end."""
    silence: threading.Event | None = None
    """No response is sent before this is set."""
    requests: list[dict[str, str]] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/data.zip"

    def first_byte(self, request: dict[str, str]) -> int:
        """Return the first byte of the response."""
        found = re.fullmatch(r"bytes=(\d+)-", request.get("Range", ""))
        condition = request.get("If-Range")
        current = condition is None or condition in self.headers.values() or not self.heeds_if_range
        return int(found[1]) if found and self.ranges and current else 0


class Handler(http.server.BaseHTTPRequestHandler):
    site: Site

    def do_GET(self) -> None:
        if self.site.silence:
            self.site.silence.wait()
        with contextlib.suppress(ConnectionError):  # the client was killed or gave up
            self.respond()

    def respond(self) -> None:
        site = self.site
        request = dict(self.headers.items())
        site.requests.append(request)
        start = site.first_byte(request)
        start += site.misses if start else 0
        if start and start >= len(site.content):
            self.answer(416, {"Content-Range": f"bytes */{len(site.content)}"}, b"")
        elif start:
            span = f"bytes {start}-{len(site.content) - 1}/{len(site.content)}"
            self.answer(206, {**site.headers, "Content-Range": span}, site.content[start:])
        else:
            self.answer(site.status, site.headers, site.content)

    def answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        site = self.site
        cut = site.cuts.pop(0) if site.cuts else None
        site.sent.append(len(body[:cut]))  # before the headers, at which a client may already send its next request
        length = len(body) if site.announces is None or status != 200 else site.announces
        chunked = site.chunked and status == 200
        if chunked:
            headers = {**headers, "Transfer-Encoding": "chunked"}
        elif length >= 0:
            headers = {**headers, "Content-Length": str(length)}
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if chunked:
            self.wfile.write(f"{len(body):x}\r\n".encode())
        self.wfile.write(body[:cut])
        if chunked and cut is None:
            self.wfile.write(b"\r\n0\r\n\r\n")
        if cut is not None and site.resets:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (required by the base class)
        pass


@contextlib.contextmanager
def serve() -> Iterator[Site]:
    """Run the server; when the block ends, it is closed and its threads have ended."""
    site = Site()
    handler = type("HandlerOfOneSite", (Handler,), {"site": site})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = False  # closing the server then waits for them
        site.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield site
        finally:
            if site.silence:
                site.silence.set()
            server.shutdown()
            thread.join()


def get(site: Site, path: Path, **expected: str | int | None) -> None:
    download(site.url, path, **{"size": None, "checksum": None, **expected})  # type: ignore[arg-type]


def left(folder: Path) -> dict[str, int]:
    return {file.name: file.stat().st_size for file in folder.iterdir()}
