"""A place on the disk to work in: with enough room, and without another process."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from messi.core.errors import MessiError
from messi.core.files import writing


class BusyError(MessiError):
    """Another process has it."""


@contextmanager
def claimed(path: Path) -> Iterator[FileIO]:
    """Open a file to append to, made if need be, and keep other processes out until the block ends."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = FileIO(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o666), "ab")
    with file:
        if not _lock(file, path):
            raise BusyError(f"Another process is working on {path}; wait for it or stop it.")
        yield file


def _lock(file: FileIO, path: Path) -> bool:
    try:
        with writing(path):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except MessiError as error:
        if isinstance(error.__cause__, BlockingIOError):
            return False
        raise
    # Whoever had the lock before may have moved or removed the file between our opening and our locking it.
    return path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat())


def require_room(folder: Path, needed: int, what: str, *, hint: str = "or choose another place") -> None:
    """Refuse to begin what the disk has no room for."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise MessiError(
            f"{what} needs {amount(needed)}, but the disk of {folder} has {amount(free)} free; make room {hint}."
        )


def amount(number: float) -> str:
    """Write a number of bytes for people."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} TB"
