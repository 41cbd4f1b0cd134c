"""The lock between processes: a file that one process at a time can lock, on Linux, macOS and Windows.

The operating system releases the lock when the process ends, even if it is killed.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from messi.core.errors import MessiError, writing

_WINDOWS = os.name == "nt"
_FOREVER = -1


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
    """Keep other processes away from ``work`` during the block.

    Args:
        work: What the lock protects; the error message names it.
        lock: The lock file. A symbolic link in its place is refused, not followed.
        wait: Wait for another process, instead of raising a :class:`BusyError`.
        remove: Called at the end of the block; returns whether to remove the lock file.

    """
    held = FileLock(lock, timeout=_FOREVER if wait else 0)
    try:
        held.acquire()
    except Timeout as error:
        raise BusyError(f"Another process is working on {work}; wait for it or stop it.") from error
    except OSError:
        with writing(lock):
            raise
    gone = False
    try:
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
