"""Run a plan on this machine, in several processes that each do one run after another and so load torch only once."""

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Annotated

import torch

from messi.core.config import Bounds
from messi.core.errors import unknown_name
from messi.engine.interrupt import Interrupted
from messi.sweeps.launchers.common.base import Launcher
from messi.sweeps.launchers.common.mps import shared_gpu
from messi.sweeps.one_run import do_run
from messi.sweeps.plan import Outcome, Plan, Planned

_AFTER_SIGNAL = 128
"""A process that a signal stopped exits with this plus the number of the signal, as in a shell."""
_SPAWN = multiprocessing.get_context("spawn")


@dataclass(frozen=True, kw_only=True)
class Local(Launcher):
    """Several processes on this machine."""

    jobs: Annotated[int, Bounds(minimum=1)] | None = None
    """Number of runs at a time; by default one per device."""
    devices: tuple[str, ...] = ()
    """Devices to use in turn, such as cuda:0 cuda:1 or cpu; by default all GPUs, or the CPU."""

    def __post_init__(self) -> None:
        """Refuse devices that this machine does not have."""
        super().__post_init__()
        gpus = torch.cuda.device_count()
        known = ["cpu", *(["cuda"] if gpus else []), *(f"cuda:{number}" for number in range(gpus))]
        for device in self.devices:
            if device not in known:
                raise unknown_name("device", device, known)

    def describe(self, runs: int) -> str:
        """Return how many runs are done at a time, and on which devices."""
        return f"{min(self._jobs(), runs)} at a time on {', '.join(self._devices())}"

    def launch(self, plan: Plan, on_end: Callable[[Outcome], None] = lambda _outcome: None) -> None:
        """Do every unfinished run; a process that dies is replaced."""
        waiting, devices = deque(plan.unfinished()), self._devices()
        jobs = min(self._jobs(), len(waiting))
        threads = max(1, torch.get_num_threads() // max(jobs, 1))  # a share of those that this process may use
        sharing = jobs > len(devices) and any(device.startswith("cuda") for device in devices)
        with shared_gpu() if sharing else contextlib.nullcontext():
            workers = [Worker(devices[number % len(devices)], threads) for number in range(jobs)]
            try:
                while waiting or any(worker.run for worker in workers):
                    for worker in workers:
                        if worker.run is None and waiting:
                            worker.begin(waiting.popleft(), plan)
                    _collect(plan, workers, on_end)
            finally:
                for worker in workers:
                    worker.end()

    def _jobs(self) -> int:
        return self.jobs or len(self._devices())

    def _devices(self) -> tuple[str, ...]:
        return self.devices or tuple(f"cuda:{n}" for n in range(torch.cuda.device_count())) or ("cpu",)


class Worker:
    """A process that does one run after another on one device."""

    def __init__(self, device: str, threads: int) -> None:
        self._device, self._threads = device, threads
        self.run: Planned | None = None
        self.start()

    def start(self) -> None:
        """Start the process."""
        self.tasks, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=_work, args=(theirs, self._device, self._threads))
        self._process.start()
        theirs.close()

    def begin(self, run: Planned, plan: Plan) -> None:
        """Send the process a run, after replacing it if it has died."""
        if not self._process.is_alive():
            self.start()
        self.run = run
        plan.forget_failure(run)
        with contextlib.suppress(ConnectionError):  # answer() reports that the process has died
            self.tasks.send((run.to_dict(), str(plan.path(run))))

    def answer(self) -> str | None:
        """Return None when the run is finished, or the reason for its failure."""
        try:
            reason: str | None = self.tasks.recv()
        except (EOFError, ConnectionResetError):
            self._process.join()
            return _how_it_ended(self._process.exitcode or 0)
        return reason

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


def _collect(plan: Plan, workers: list[Worker], on_end: Callable[[Outcome], None]) -> None:
    """Wait until a run ends, and record how."""
    busy = {worker.tasks: (worker, worker.run) for worker in workers if worker.run}
    for connection in wait(list(busy)):
        worker, run = busy[connection]  # type: ignore[index]  # one of those given to wait()
        on_end(plan.record_end(run, worker.answer()))
        worker.run = None


def _work(tasks: Connection, device: str, threads: int) -> None:
    """Do runs until there are no more: what a worker process executes."""
    torch.set_num_threads(threads)
    _stop_with_parent()
    try:
        while True:
            planned, folder = tasks.recv()
            tasks.send(do_run(planned, folder, device))
    except Interrupted as interrupted:
        sys.exit(_AFTER_SIGNAL + interrupted.signal)
    except (EOFError, ConnectionError, KeyboardInterrupt):
        return  # no more runs, or the user interrupted the plan: the last run is finished or has saved a checkpoint


def _stop_with_parent() -> None:
    """Send this process a SIGTERM when the parent dies, so that its run saves a checkpoint and stops.

    A pipe reports the death, which also works if the parent died before this process had loaded its modules.
    """
    if parent := multiprocessing.parent_process():
        threading.Thread(target=_terminate_after, args=(parent.sentinel,), daemon=True).start()


def _terminate_after(sentinel: int) -> None:
    wait([sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
