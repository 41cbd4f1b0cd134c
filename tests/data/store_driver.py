"""Prepares the store of a folder in a separate process, which a test can kill at any point.

usage: store_driver.py ROOT           prepares; waits for a line of input after every line that it prints
       store_driver.py ROOT HOMES     for N = 1, 2, ...: in the folder HOMES/N, one process dies at its N-th fsync and
                                      a second one resumes; a line of JSON reports what it found and did
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from messi.core.lock import locked
from messi.data import image_files, store
from messi.data.listing import list_folder
from messi.data.progress import LogProgress

CHUNK = 4


def say(*words: object) -> None:
    """Print a line and wait until the test answers; a closed input means continue."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()
    sys.stdin.readline()


class Telling(LogProgress):
    """Reports every step to the test."""

    def started(self, text: str, total: int | None) -> None:  # noqa: ARG002 (the protocol's)
        """Work begins."""
        say("started", total)

    def advanced(self, number: int) -> None:
        """Some images are on the disk."""
        say("advanced", number)


class Counting(LogProgress):
    """Counts the images that are decoded."""

    decoded = 0

    def advanced(self, number: int) -> None:
        """Some images are on the disk."""
        self.decoded += number


def prepare_slowly(root: Path) -> None:
    """Prepare and report every step, including the moment before the lock is requested."""

    def asking(work: Path, lock: Path, *, wait: bool) -> AbstractContextManager[None]:
        say("asks")
        return locked(work, lock, wait=wait)

    setattr(store, "locked", asking)  # noqa: B010 (mypy: no assigning to a function)
    done = store.prepare_store(list_folder(root), Telling())
    say("done", len(done.entries))


def die_at_sync(number: int) -> None:
    """End this process, with a real SIGKILL, at the N-th fsync: what was written is there, what follows is not."""
    calls = iter(range(1, 10_000))
    real = os.fsync

    def fsync(handle: int) -> None:
        if next(calls) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        real(handle)

    setattr(os, "fsync", fsync)  # noqa: B010


def in_a_fork(work: Callable[[], None]) -> int:
    """Run a function in a fork, which does not import everything again."""
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def go_on(root: Path, number: int) -> None:
    """Prepare after the other process has died, and report it."""
    journal = store.store_folder(root) / "journal"
    kept = journal.read_bytes().count(b"\n") if journal.exists() else 0
    progress = Counting()
    store.prepare_store(list_folder(root), progress)
    sys.stdout.write(json.dumps({"sync": number, "kept": kept, "decoded": progress.decoded}) + "\n")
    sys.stdout.flush()


def die_everywhere(root: Path, homes: Path) -> None:
    """Let a process die at every single fsync."""
    for number in range(1, 10_000):
        os.environ["MESSI_HOME"] = str(homes / str(number))

        def first(number: int = number) -> None:
            die_at_sync(number)
            store.prepare_store(list_folder(root), LogProgress())

        def second(number: int = number) -> None:
            go_on(root, number)

        if in_a_fork(first) != -signal.SIGKILL or in_a_fork(second) != 0:
            break


if __name__ == "__main__":
    setattr(image_files, "_CHUNK", CHUNK)  # noqa: B010 (constant outside of tests)
    if len(sys.argv) == 2:
        prepare_slowly(Path(sys.argv[1]))
    else:
        die_everywhere(Path(sys.argv[1]), Path(sys.argv[2]))
