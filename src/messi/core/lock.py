"""The lock between processes: a file that one process at a time can lock, on Linux, macOS and Windows.

The operating system releases the lock when the process ends, even if it is killed.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from messi.core.errors import MessiError, writing

_WINDOWS = os.name == "nt"
_FOREVER = -1
_BRIEFLY = 0.2
"""Seconds to wait for a process that only asks whether the lock is held."""


class BusyError(MessiError):
    """Another process holds the lock."""


def always() -> bool:
    """For ``remove``: always remove the lock file."""
    return True


def never() -> bool:
    """For ``remove``: keep the lock file."""
    return False


@contextmanager
def locked(work: Path, lock: Path, *, wait: bool = False, remove: Callable[[], bool] = never) -> Iterator[None]:
    """Keep other processes away from ``work`` during the block; the time of the lock file is that of its beginning.

    Args:
        work: What the lock protects; the error message names it.
        lock: The lock file. A symbolic link in its place is refused, not followed.
        wait: Wait for another process, instead of raising a :class:`BusyError`.
        remove: Called at the end of the block; returns whether to remove the lock file.

    """
    held = FileLock(lock, timeout=_FOREVER if wait else _BRIEFLY)
    try:
        held.acquire()
    except Timeout as error:
        raise BusyError(f"Another process is working on {work}; wait for it or stop it.") from error
    except OSError:
        with writing(lock):
            raise
    gone = False
    try:
        with suppress(OSError):
            os.utime(lock)
        yield
    finally:
        try:
            gone = remove()
            if gone and not _WINDOWS:  # before the release: a waiting process notices and creates a new one
                lock.unlink(missing_ok=True)
        finally:
            held.release()
        if gone and _WINDOWS:  # where an open file cannot be removed
            with suppress(OSError):
                lock.unlink()


def is_held(lock: Path) -> bool:
    """Return whether a process holds a lock; changes nothing, so that the time of the file stays that of its holder."""
    try:
        handle = os.open(lock, os.O_RDWR if _WINDOWS else os.O_RDONLY)
    except OSError:
        return False
    try:
        if sys.platform == "win32":
            import msvcrt  # noqa: PLC0415 (each exists on one system only)

            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl  # noqa: PLC0415

            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)  # which also releases it
    return False
