"""Reading and writing files safely: only regular files are read, and no reader ever sees a partially written file."""

import errno
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from io import BufferedReader
from pathlib import Path

from messi.core.errors import MessiError, writing
from messi.core.lock import always, locked

_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_LOCK = ".lock"
# O_BINARY exists only on Windows, the other two optional flags only elsewhere.
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading; anything else raises an OSError that names its kind.

    A named pipe may never answer, and a device may never end.
    """
    require_regular(path)  # opening alone may block on a pipe, or trigger a device
    handle = os.open(path, _READ)
    try:
        _require_kind(os.fstat(handle).st_mode)  # it may have been replaced in between
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_regular(path: Path) -> bytes:
    """Return the content of a regular file."""
    with open_regular(path) as file:
        return file.read()


def require_regular(path: Path) -> None:
    """Raise an OSError that names the kind of anything but a regular file."""
    _require_kind(path.stat().st_mode)


def _require_kind(mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, f"it is {_KINDS.get(stat.S_IFMT(mode), 'a special file')}, not a regular file")


def replace_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Let ``write`` fill a temporary file, flush it to disk, then move it to ``path`` in one step."""
    with writing(path), _temporary_folder(path) as folder:
        temporary = folder / path.name
        write(temporary)
        sync(temporary)
        temporary.replace(path)
        sync(path.parent)


def leftovers(path: Path) -> list[Path]:
    """Return the temporary folders or files that killed processes left next to a file that they were writing."""
    name = re.compile(re.escape(path.name) + r"\.[0-9a-f]{8}\.tmp")
    return [place for place in path.parent.iterdir() if name.fullmatch(place.name)]


@contextmanager
def _temporary_folder(path: Path) -> Iterator[Path]:
    """Create a private folder for the block, where nobody else can place a link; remove leftovers first."""
    for place in leftovers(path):
        with suppress(OSError, MessiError):  # another process is still writing there, or it belongs to another user
            _remove_unused(place)
    folder, lock = _new_folder(path)
    try:
        with lock:
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _new_folder(path: Path) -> tuple[Path, ExitStack]:
    """Return a new folder, and the held lock that marks it as in use."""
    while True:
        folder, lock = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp"), ExitStack()
        folder.mkdir(mode=0o700)
        with suppress(FileNotFoundError):  # another process removed it as a leftover before it was locked
            mode = folder.stat().st_mode
            with suppress(MessiError):  # some network disks have no locks, so no process can remove the folder either
                lock.enter_context(locked(folder, folder / _LOCK, wait=True, remove=always))
            if folder.stat().st_mode == mode:  # filelock creates a missing folder again, but not a private one
                return folder, lock
        lock.close()


def _remove_unused(place: Path) -> None:
    if place.is_symlink() or not place.is_dir():
        place.unlink()
        return
    with locked(place, place / _LOCK, remove=always):
        shutil.rmtree(place, ignore_errors=True)  # on Windows, this leaves the lock file, which is open
    with suppress(OSError):
        place.rmdir()


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically; an unpaired surrogate, as in some file names, becomes a question mark."""
    write_bytes(path, text.encode("utf-8", "replace"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically."""

    def write(temporary: Path) -> None:
        temporary.write_bytes(content)

    replace_atomically(path, write)


def sync(path: Path) -> None:
    """Flush a file, or a folder's list of files, to the disk."""
    windows = os.name == "nt"
    if windows and path.is_dir():
        return  # Windows cannot open a folder
    handle = os.open(path, os.O_RDWR if windows else os.O_RDONLY)  # Windows flushes only files open for writing
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
