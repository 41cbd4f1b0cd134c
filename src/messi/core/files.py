"""Writing files so that a reader, or a process that starts after a crash, never sees half of one."""

import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
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
    """Let ``write`` fill a temporary file, bring it to disk, then put it in the place of ``path`` in one step."""
    with writing(path), _folder_beside(path) as folder:
        temporary = folder / path.name
        write(temporary)
        sync(temporary)
        temporary.replace(path)
        sync(path.parent)


def leftovers(path: Path) -> list[Path]:
    """Return what killed processes left beside a file that they were writing."""
    name = re.compile(re.escape(path.name) + r"\.[0-9a-f]{8}\.tmp")
    return [place for place in path.parent.iterdir() if name.fullmatch(place.name)]


@contextmanager
def _folder_beside(path: Path) -> Iterator[Path]:
    """Make a new folder for the block, into which nobody else can have put a link; remove what killed writes left."""
    for place in leftovers(path):
        with suppress(OSError):  # another process is still writing there, or it is not ours
            _remove_unused(place)
    folder, handle = _new_folder(path)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def _new_folder(path: Path) -> tuple[Path, int]:
    """Return a new folder and the handle that marks it as in use."""
    while True:
        folder = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
        folder.mkdir(mode=0o700)
        with suppress(FileNotFoundError):  # another process took it for a leftover before it was marked
            handle = _open_folder(folder)
            with suppress(OSError):  # some network disks have no locks, so nobody can take it for unused there either
                fcntl.flock(handle, fcntl.LOCK_EX)
            if folder.exists():
                return folder, handle
            os.close(handle)


def _remove_unused(place: Path) -> None:
    if place.is_symlink() or not place.is_dir():
        place.unlink()
        return
    handle = _open_folder(place)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(place)
    finally:
        os.close(handle)


def _open_folder(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically; half of a character, as names of files may hold, becomes a question mark."""
    write_bytes(path, text.encode("utf-8", "replace"))


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
