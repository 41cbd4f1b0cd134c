"""Writing files so that a reader, or a process that starts after a crash, never sees half of one."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from messi.core.errors import MessiError


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an operating-system error (a full disk, no permission) into one sentence that names the file."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise MessiError(
            f"Could not write {path}: {reason}. What was saved before is intact; "
            "make room or choose another place, then run the same command again."
        ) from error


def replace_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Let ``write`` fill a temporary file beside ``path``, bring it to disk, then put it in place in one step."""
    temporary = path.with_name(path.name + ".tmp")
    with writing(path):
        try:
            write(temporary)
            sync(temporary)
            temporary.replace(path)
            sync(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically."""

    def write(temporary: Path) -> None:
        temporary.write_bytes(content)

    replace_atomically(path, write)


def sync(path: Path) -> None:
    """Bring a file, or a folder's list of files, to the disk itself."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
