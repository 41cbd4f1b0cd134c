"""A real server: ``messi serve`` in another process, on a free port of the loopback address."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

import uvicorn
from fastapi import FastAPI

from messi.serving.run_server import bind, url

START = "import sys; from messi.cli.main import main; sys.exit(main(sys.argv[1:]))"


@dataclass(frozen=True)
class Server:
    """A running service."""

    url: str
    process: subprocess.Popen[str]

    @property
    def port(self) -> int:
        return int(self.url.rstrip("/").rpartition(":")[2])

    def memory(self) -> int:
        """Return the bytes of memory that it uses now."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def send(self, head: str, *chunks: bytes, wait: float = 15) -> tuple[bytes, float, int]:
        """Send bytes as they are; return the reply, the time that it took, and the number of bytes that were sent."""
        start, sent = time.monotonic(), 0
        with socket.create_connection(("127.0.0.1", self.port), wait) as connection:
            connection.sendall(head.replace("\n", "\r\n").encode())
            try:
                for chunk in chunks:
                    connection.sendall(chunk)
                    sent += len(chunk)
            except (BrokenPipeError, ConnectionResetError):
                pass
            reply = b""
            try:
                while more := connection.recv(65536):
                    reply += more
            except ConnectionResetError:
                pass
        return reply, time.monotonic() - start, sent

    def connected(self) -> set[int]:
        """Return the ports of the clients whose connections the server holds."""
        found = set()
        for row in Path(f"/proc/{self.process.pid}/net/tcp").read_text().splitlines()[1:]:
            local, remote, inode = (row.split()[column] for column in (1, 2, 9))
            if int(local.split(":")[1], 16) == self.port and inode != "0":  # the kernel alone may still hold others
                found.add(int(remote.split(":")[1], 16))
        return found

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Stop it as a system would, and return its exit code."""
        self.process.send_signal(number)
        return self.process.wait(60)


@contextmanager
def serving(run: Path, *options: str, home: Path) -> Iterator[Server]:
    """Serve a run during the block, and stop it with Ctrl-C; it must end well and write no traceback."""
    words = [sys.executable, "-c", START, "serve", str(run), "--port", "0", "--device", "cpu", *options]
    environment = {**os.environ, "MESSI_HOME": str(home), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    with TemporaryFile("w+") as errors:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            found = re.search(r"http://\S+/", line)
            if not found:
                process.wait(60)
                errors.seek(0)
                raise AssertionError(f"the server did not start: {errors.read()}")
            server = Server(found[0], process)
            yield server
            if process.poll() is None:
                server.stop(signal.SIGINT)
            assert process.returncode == 0
        finally:
            if process.poll() is None:
                process.kill()
            process.wait(60)
            process.stdout.close()
        errors.seek(0)
        log = errors.read()
        assert "Traceback" not in log, log


@contextmanager
def serving_here(app: FastAPI) -> Iterator[str]:
    """Serve an app in a thread of this process; yield its address."""
    server = uvicorn.Server(uvicorn.Config(app, http="h11", ws="none", log_config=None, timeout_graceful_shutdown=1))
    with bind("127.0.0.1", 0) as bound:
        thread = threading.Thread(target=server.run, args=([bound],))
        thread.start()
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        try:
            yield url(bound)
        finally:
            server.should_exit = True
            thread.join(20)
