"""Reading files that others made: regular ones only, for a pipe never answers and a device never ends."""

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path

_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file to read; anything else raises an OSError that says what it is."""
    require_regular(path)  # opening alone may block on a pipe, or make a device do something
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
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
    """Raise an OSError that says what it is unless there is a regular file."""
    _require_kind(path.stat().st_mode)


def _require_kind(mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, f"it is {_KINDS.get(stat.S_IFMT(mode), 'a special file')}, not a regular file")
