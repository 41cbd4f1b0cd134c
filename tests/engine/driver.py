"""Runs in separate processes that kill themselves with a real SIGKILL where the test requests it.

Every line of input is a request, a JSON list of two output files and the arguments of a run. Each run is a fork of this
process, because importing torch again would take longer than the run. The exit code of each is printed.

arguments: FOLDER [step:N | sync:N | save:N | term:N | int:N] [hold:FILE-N] [--OPTION=VALUE of messi train] [RUN ...]
  step:N  after step N
  sync:N  at the N-th fsync: the new file is written, but not yet renamed
  save:N  in the middle of the N-th write of a safetensors file
  term:N, int:N  sends itself SIGTERM or SIGINT after step N instead
  RUN ...  averages these runs instead of training; N counts what messi average writes
  hold:last-N, hold:model-N  that file of step N stays half written; the kills above that name a step wait for it
"""

import json
import os
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from messi.cli import train as command
from messi.cli.main import main
from messi.core import files, tensorfile

held = threading.Event()
held.set()


def kill() -> None:
    """End this process immediately."""
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


def hold_save(file: str) -> None:
    """Block forever when half of a file, such as the "last" of step 5, is written."""
    name, _, step = file.partition("-")
    real = getattr(tensorfile, "save_file")  # noqa: B009
    held.clear()

    def save(tensors: Any, path: Path, metadata: Any) -> None:
        real(tensors, path, metadata=metadata)
        if path.name.startswith(name) and json.loads(metadata["messi"])["step"] == int(step):
            os.truncate(path, path.stat().st_size // 2)
            held.set()
            threading.Event().wait()

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
            held.wait()
            os.kill(os.getpid(), self.number)

    def logged(self, step: int, terms: Mapping[str, float]) -> None:
        """Nothing to do."""

    def evaluated(self, step: int, accuracy: float) -> None:
        """Nothing to do."""

    def finished(self) -> None:
        """Nothing to do."""


def arm(place: str) -> None:
    """Prepare the kill."""
    how, _, number = place.partition(":")
    if how == "sync":
        kill_in_sync(int(number))
    elif how == "save":
        kill_in_save(int(number))
    elif how == "hold":
        hold_save(number)
    else:
        signals = {"step": signal.SIGKILL, "term": signal.SIGTERM, "int": signal.SIGINT}
        setattr(command, "progress", lambda *_: SignalAfterStep(int(number), signals[how]))  # noqa: B010


def next_request() -> list[str]:
    """Return the arguments of a request in the fork for it; the first process ends with its input."""
    for line in sys.stdin:
        *outputs, arguments = json.loads(line)
        child = os.fork()
        if child == 0:
            for number, file in enumerate(outputs, start=1):
                os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
            return list(arguments)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()
    sys.exit()


if __name__ == "__main__":
    folder, *places = next_request()
    given = [place for place in places if place.startswith("--")]
    runs = [place for place in places if Path(place).is_dir()]
    for place in places:
        if place not in (*given, *runs):
            arm(place)
    if runs:
        sys.exit(main(["average", *runs, *given, "--device", "cpu", "--out", folder]))
    options = "--data two_subsets --per-domain 60 --target b2 --steps 23 --evaluate-every 5 --log-every 3"
    more = "--algorithm messi --batch-per-domain 8 --balance-momentum 0.5 --device cpu"
    sys.exit(main(["train", *options.split(), *more.split(), *given, "--out", folder]))
