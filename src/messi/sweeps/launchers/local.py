"""Run a plan on this machine, in several processes that each do one run after another and so load torch only once."""

import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Annotated

import torch

from messi.core.config import Bounds
from messi.core.errors import unknown_name
from messi.core.hardware import local_devices
from messi.sweeps.launchers.common.base import Launcher
from messi.sweeps.launchers.common.mps import shared_gpu
from messi.sweeps.launchers.common.run_process import RunProcess
from messi.sweeps.plan import Outcome, Plan, Planned


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
        known = list(dict.fromkeys(["cpu", *(["cuda"] if torch.cuda.device_count() else []), *local_devices()]))
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
            workers = [RunProcess(devices[number % len(devices)], threads) for number in range(jobs)]
            runs: dict[RunProcess, Planned] = {}
            try:
                while waiting or runs:
                    for worker in workers:
                        if worker not in runs and waiting:
                            runs[worker] = run = waiting.popleft()
                            plan.forget_failure(run)
                            worker.begin(run.to_dict(), plan.path(run))
                    _collect(plan, runs, on_end)
            finally:
                for worker in workers:
                    worker.end()

    def _jobs(self) -> int:
        return self.jobs or len(self._devices())

    def _devices(self) -> tuple[str, ...]:
        return self.devices or tuple(local_devices())


def _collect(plan: Plan, runs: dict[RunProcess, Planned], on_end: Callable[[Outcome], None]) -> None:
    """Wait until a run ends, and record how."""
    busy = {worker.tasks: worker for worker in runs}
    for connection in wait(list(busy)):
        worker = busy[connection]  # type: ignore[index]  # one of those given to wait()
        on_end(plan.record_end(runs.pop(worker), worker.answer()))
