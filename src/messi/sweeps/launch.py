"""Do the runs of a plan, several at a time, each in a process that outlives it: torch is loaded once for many."""

import contextlib
import functools
import json
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from messi.core.errors import MessiError
from messi.data.datasets.common.base import DataConfig
from messi.data.examples import Examples
from messi.engine.config import RunConfig
from messi.engine.interrupt import Interrupted
from messi.engine.run import run
from messi.sweeps.mps import shared_gpu
from messi.sweeps.plan import Outcome, Plan, Planned

_AFTER_SIGNAL = 128
"""A process that saved its state when a signal came leaves with this plus the signal's number, as in a shell."""
_SPAWN = multiprocessing.get_context("spawn")


@dataclass
class Worker:
    """A process that does one run after the other."""

    process: BaseProcess
    tasks: Connection
    run: Planned | None = None

    @classmethod
    def start(cls, device: str, threads: int) -> "Worker":
        """Start a process for a device."""
        ours, theirs = _SPAWN.Pipe()
        process = _SPAWN.Process(target=_work, args=(theirs, device, threads))
        process.start()
        theirs.close()
        return cls(process, ours)

    def begin(self, planned: Planned, folder: Path) -> None:
        """Give it a run to do."""
        self.run = planned
        with contextlib.suppress(ConnectionError):  # a process that has died says so when it is asked for its answer
            self.tasks.send((json.dumps(planned.config.to_dict()), str(folder)))

    def answer(self) -> str | None:
        """Return None when its run is done, else why it failed."""
        try:
            reason: str | None = self.tasks.recv()
        except (EOFError, ConnectionResetError):
            self.process.join()
            return _how_it_ended(self.process.exitcode or 0)
        return reason

    def end(self) -> None:
        """Let the process finish what it does and leave."""
        self.tasks.close()
        self.process.join()


def _how_it_ended(code: int) -> str:
    number = {_AFTER_SIGNAL + asked: asked for asked in (signal.SIGINT, signal.SIGTERM)}.get(code, -code)
    if number <= 0:
        return f"Its process was ended with exit code {code}."
    guess = "; the machine may have run out of memory" if number == signal.SIGKILL else ""
    return f"Its process was ended by signal {signal.Signals(number).name}{guess}."


def launch(
    plan: Plan, *, jobs: int, devices: Sequence[str], told: Callable[[Outcome], None] = lambda _outcome: None
) -> list[Outcome]:
    """Do what is not done of a plan and return how all of it stands; a run that fails does not stop the others.

    Args:
        plan: the runs.
        jobs: how many at a time.
        devices: what they run on, in turn.
        told: is called with every run that ends.

    """
    waiting = deque(run for run in plan.runs if not _is_done(plan, run))
    jobs = min(jobs, len(waiting))
    threads = max(1, torch.get_num_threads() // max(jobs, 1))  # of those that this process may use
    sharing = jobs > len(devices) and any(device.startswith("cuda") for device in devices)
    with shared_gpu() if sharing else contextlib.nullcontext():
        workers = [Worker.start(devices[number % len(devices)], threads) for number in range(jobs)]
        try:
            while waiting or any(worker.run for worker in workers):
                _hand_out(plan, workers, waiting)
                _collect(plan, workers, told, devices, threads)
        finally:
            for worker in workers:
                worker.end()
    return plan.outcomes()


def _is_done(plan: Plan, run: Planned) -> bool:
    """Tell whether a run is finished; why it failed before, if it did, is then of no interest any more."""
    done = plan.outcome(run).state == "done"
    if done:
        plan.forget_failure(run)
    return done


def _hand_out(plan: Plan, workers: list[Worker], waiting: deque[Planned]) -> None:
    for worker in workers:
        if worker.run is None and waiting:
            planned = waiting.popleft()
            plan.forget_failure(planned)
            worker.begin(planned, plan.path(planned))


def _collect(
    plan: Plan, workers: list[Worker], told: Callable[[Outcome], None], devices: Sequence[str], threads: int
) -> None:
    """Wait until a run ends, and note how; a process that died is replaced."""
    busy = {worker.tasks: number for number, worker in enumerate(workers) if worker.run}
    for connection in wait(list(busy)):
        number = busy[connection]  # type: ignore[index]  # they are the connections that were given
        worker = workers[number]
        assert worker.run is not None  # noqa: S101 (told to the type checker)
        reason = worker.answer()
        if not _is_done(plan, worker.run) and reason is not None:  # another process may have finished the run
            plan.note_failure(worker.run, reason)
        told(plan.outcome(worker.run))
        worker.run = None
        if not worker.process.is_alive():
            workers[number] = Worker.start(devices[number % len(devices)], threads)


def _work(tasks: Connection, device: str, threads: int) -> None:
    """Do runs until there are no more, in a process of its own."""
    torch.set_num_threads(threads)
    _end_with_parent()
    try:
        while True:
            text, folder = tasks.recv()
            config = json.loads(text)
            tasks.send(_do(RunConfig.from_dict(config, files=_own_files(config)), folder, device))
    except Interrupted as interrupted:
        sys.exit(_AFTER_SIGNAL + interrupted.signal)
    except (EOFError, ConnectionError, KeyboardInterrupt):
        return  # no more to do, or the user has had enough: what was under way is done or has saved its state


def _end_with_parent() -> None:
    """Send this process a SIGTERM when the plan's own process dies: a run saves its state at that, and stops.

    A pipe tells it, so it is also noticed where the parent died before this process had loaded its modules.
    """
    if parent := multiprocessing.parent_process():
        threading.Thread(target=_terminate_after, args=(parent.sentinel,), daemon=True).start()


def _terminate_after(sentinel: int) -> None:
    wait([sentinel])
    os.kill(os.getpid(), signal.SIGTERM)


def _do(config: RunConfig, folder: str, device: str) -> str | None:
    try:
        run(config, out=folder, device=device, load=lambda: _examples(json.dumps(config.data.to_dict())))
    except MessiError as error:
        return str(error)
    except Exception:  # noqa: BLE001 (whatever it is, the other runs go on)
        return traceback.format_exc()
    return None


@functools.lru_cache(maxsize=4)
def _examples(data: str) -> Examples:
    """Return loaded data; neighbours in a plan mostly share it."""
    values = json.loads(data)
    config: DataConfig = DataConfig.from_dict(values, files=_own_files({"data": values}))
    return config.load()


def _own_files(config: dict[str, Any]) -> list[str]:
    """Return the caller's own files that a config names: the plan's own process made it, so they may be run."""
    names = [str(part.get("name")) for part in config.values() if isinstance(part, dict)]
    return [name for name in names if name.endswith(".py")]
