"""The one lock between processes: a lock file that one process at a time holds, on Linux, macOS and Windows.

The operating system releases the lock when its process ends, however it ends.
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
    """Remove the lock file in any case: the value for ``remove``."""
    return True


def never() -> bool:
    """Keep the lock file: the value for ``remove``."""
    return False


@contextmanager
def locked(work: Path, lock: Path, *, wait: bool = False, remove: Callable[[], bool] = never) -> Iterator[None]:
    """Keep other processes away from ``work`` during the block.

    Args:
        work: What the lock protects; the error message names it.
        lock: The lock file. A symbolic link in its place is refused, not followed.
        wait: Wait for another process, instead of raising a :class:`BusyError`.
        remove: Asked at the end of the block whether to remove the lock file.

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
            if gone and not _WINDOWS:  # while it is held: a process that waits notices, and makes a new lock file
                lock.unlink(missing_ok=True)
        finally:
            held.release()
        if gone and _WINDOWS:  # where an open file cannot be removed
            with suppress(OSError):
                lock.unlink()
