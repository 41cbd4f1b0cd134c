"""A run in a process of its own that kills itself, with a real SIGKILL, where the test says.

usage: driver.py FOLDER [step:N | sync:N | save:N | term:N | int:N]
  step:N  after step N
  sync:N  at the N-th fsync: the new file is written, but not yet in its place
  save:N  in the middle of the N-th write of a safetensors file
  term:N, int:N  sends itself SIGTERM or SIGINT after step N instead
"""

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from messi.cli.main import main
from messi.core import files, tensorfile


def kill() -> None:
    """End this process at once."""
    os.kill(os.getpid(), signal.SIGKILL)


def kill_in_sync(number: int) -> None:
    """Die at the N-th fsync."""
    calls = iter(range(1, 10_000))
    real = files.sync

    def sync(path: Path) -> None:
        if next(calls) == number:
            kill()
        real(path)

    files.sync = sync


def kill_in_save(number: int) -> None:
    """Die when half of the N-th safetensors file is written."""
    calls = iter(range(1, 10_000))
    real = getattr(tensorfile, "save_file")  # noqa: B009 (mypy: it is imported there, not exported)

    def save(tensors: Any, path: Path, metadata: Any) -> None:
        real(tensors, path, metadata=metadata)
        if next(calls) == number:
            os.truncate(path, path.stat().st_size // 2)
            kill()

    setattr(tensorfile, "save_file", save)  # noqa: B010


class SignalAfterStep:
    """Sends a signal after step N."""

    def __init__(self, step: int, number: int) -> None:
        self.step, self.number = step, number

    def started(self, step: int, steps: int) -> None:
        """Nothing to do."""

    def stepped(self, step: int) -> None:
        """Send the signal."""
        if step == self.step:
            os.kill(os.getpid(), self.number)

    def logged(self, step: int, terms: Mapping[str, float]) -> None:
        """Nothing to do."""

    def evaluated(self, step: int, accuracy: float) -> None:
        """Nothing to do."""

    def finished(self) -> None:
        """Nothing to do."""


def arm(place: str) -> None:
    """Prepare the end."""
    how, _, number = place.partition(":")
    if how == "sync":
        kill_in_sync(int(number))
    elif how == "save":
        kill_in_save(int(number))
    else:
        import messi.cli.train as command  # noqa: PLC0415

        signals = {"step": signal.SIGKILL, "term": signal.SIGTERM, "int": signal.SIGINT}
        setattr(command, "progress", lambda _name: SignalAfterStep(int(number), signals[how]))  # noqa: B010


if __name__ == "__main__":
    folder, *places = sys.argv[1:]
    for place in places:
        arm(place)
    options = "--data two_subsets --per-domain 60 --target b2 --steps 23 --evaluate-every 5 --log-every 3"
    more = "--batch-per-domain 8 --balance-momentum 0.5 --device cpu"
    sys.exit(main(["train", *options.split(), *more.split(), "--out", folder]))
