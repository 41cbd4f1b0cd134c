"""A process that does one run after another, and so loads torch only once."""

import contextlib
import logging
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Mapping
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from messi.core.text import printable
from messi.engine.interrupt import Interrupted

_AFTER_SIGNAL = 128
"""A process that a signal stopped exits with this plus the number of the signal, as in a shell."""
_SPAWN = multiprocessing.get_context("spawn")


class RunProcess:
    """A process on this machine that does one run after another on one device; it stops when this process dies."""

    def __init__(self, device: str, threads: int) -> None:
        self._device, self._threads = device, threads
        self.start()

    def start(self) -> None:
        """Start the process."""
        self.tasks, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=_work, args=(theirs, self._device, self._threads))
        self._process.start()
        theirs.close()

    def begin(self, planned: Mapping[str, Any], folder: Path, **elsewhere: Any) -> None:
        """Send the process a run, after replacing it if it has died; the arguments are those of ``do_run``."""
        if not self._process.is_alive():
            self.start()
        with contextlib.suppress(ConnectionError):  # answer() reports that the process has died
            self.tasks.send((planned, str(folder), elsewhere))

    def answer(self) -> str | None:
        """Wait for the end of the run; return None when it is finished, or the reason for its failure."""
        try:
            reason: str | None = self.tasks.recv()
        except (EOFError, ConnectionResetError):
            self._process.join()
            return _how_it_ended(self._process.exitcode or 0)
        return reason

    def interrupt(self) -> None:
        """Let the run save a checkpoint and stop; :meth:`answer` returns when it has."""
        self._process.terminate()

    def end(self) -> None:
        """Let the process finish its run and exit."""
        self.tasks.close()
        self._process.join()


def _how_it_ended(code: int) -> str:
    number = {_AFTER_SIGNAL + asked: asked for asked in (signal.SIGINT, signal.SIGTERM)}.get(code, -code)
    if number <= 0:
        return f"The process ended with exit code {code}."
    name = signal.Signals(number).name
    return f"The process ended with {name}{'; the machine may have run out of memory' if name == 'SIGKILL' else ''}."


def _work(tasks: Connection, device: str, threads: int) -> None:
    """Do runs until there are no more: what the process executes."""
    _stop_with_parent()
    import torch  # noqa: PLC0415 (only this process needs it, not a launcher that starts it)

    from messi.sweeps.one_run import do_run  # noqa: PLC0415

    torch.set_num_threads(threads)
    notes = _NotesOfRun()
    logging.getLogger("messi").handlers = [notes]
    try:
        while True:
            planned, folder, elsewhere = tasks.recv()
            notes.run = Path(folder).name
            tasks.send(do_run(planned, folder, device, **elsewhere))
    except Interrupted as interrupted:
        sys.exit(_AFTER_SIGNAL + interrupted.signal)
    except (EOFError, ConnectionError, KeyboardInterrupt):
        return  # no more runs, or the user interrupted the plan: the last run is finished or has saved a checkpoint


class _NotesOfRun(logging.StreamHandler):  # type: ignore[type-arg]  # of text, like standard error
    """Writes messi's log to standard error and names the run, because several runs write there."""

    run = ""

    def format(self, record: logging.LogRecord) -> str:
        """Return a line."""
        return printable(f"{self.run}: {record.getMessage()}")


def _stop_with_parent() -> None:
    """Send this process a SIGTERM when the parent dies, so that its run saves a checkpoint and stops.

    A pipe reports the death, which also works if the parent died before this process had loaded its modules.
    """
    if parent := multiprocessing.parent_process():
        threading.Thread(target=_terminate_after, args=(parent.sentinel,), daemon=True).start()


def _terminate_after(sentinel: int) -> None:
    wait([sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
