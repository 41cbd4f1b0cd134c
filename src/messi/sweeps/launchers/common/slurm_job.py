"""What a Slurm job executes on its node: runs of a plan, with a checkpoint and a requeue before the time is up."""

import platform
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from messi.core.rundir import RunDir
from messi.engine.interrupt import Interrupted
from messi.sweeps.launchers.common.slurm_cluster import is_running
from messi.sweeps.one_run import do_run
from messi.sweeps.plan import write_failure

if TYPE_CHECKING:  # an extra; whoever submits or executes a job has it
    from submitit import JobEnvironment
    from submitit.helpers import DelayedSubmission

NO_PROGRESS = "The time limit of the Slurm job was reached before the run made any progress; allow more with --time."


@dataclass
class SlurmJob:
    """Runs to do one after another. submitit pickles it, calls it on the node and requeues what is left of it."""

    plan: Path
    runs: list[tuple[str, dict[str, Any]]]
    """The name and the plain values of each run that is left."""
    threads: int
    device: str
    devices: int = 1
    """How many devices share the steps of a run."""

    def __call__(self) -> None:
        """Do the runs. Slurm's warning before the time limit, and preemption, end in a checkpoint and a requeue."""
        torch.set_num_threads(self.threads)
        requeue = _use_signals()
        try:
            self._do_runs()
        except Interrupted as stop:
            for number in (signal.SIGTERM, signal.SIGUSR2):  # Slurm may send more of them
                signal.signal(number, signal.SIG_IGN)
            log(str(stop))
            if is_running(_job().job_id):  # otherwise it was cancelled
                requeue(signal.SIGUSR2, None)  # exits
            sys.exit(f"The job was stopped by {signal.Signals(stop.signal).name}.")

    def checkpoint(self) -> "DelayedSubmission":
        """Return what the requeued job must do; submitit calls this."""
        from submitit.helpers import DelayedSubmission  # noqa: PLC0415 (an extra)

        return DelayedSubmission(self)

    def _do_runs(self) -> None:
        while self.runs:
            name, planned = self.runs[0]
            folder = RunDir(self.plan / "runs" / name)
            before = _changed(folder)
            self._link_log(name)
            log(f"{name}: {'resumed' if before else 'started'}")
            try:
                self._end(name, do_run(planned, folder.path, self.device, devices=self.devices))
            except Interrupted as stop:
                if stop.signal == signal.SIGUSR2 and _changed(folder) == before:
                    self._end(name, NO_PROGRESS)  # a requeued job would not get further
                if self.runs:
                    raise

    def _end(self, name: str, reason: str | None) -> None:
        log(f"{name}: {reason or 'done'}")
        if reason:
            write_failure(self.plan, name, reason)
        self.runs = self.runs[1:]

    def _link_log(self, name: str) -> None:
        """Let ``PLAN/slurm/NAME.log`` lead to the output of this job."""
        link = self.plan / "slurm" / f"{name}.log"
        link.unlink(missing_ok=True)
        link.symlink_to(_job().paths.stdout.relative_to(link.parent))


def _job() -> "JobEnvironment":
    from submitit import JobEnvironment  # noqa: PLC0415 (an extra)

    return JobEnvironment()


def _use_signals() -> "Callable[[int, FrameType | None], object]":
    """Stop the run at its next step for SIGUSR2, as for SIGTERM; return submitit's handler, which requeues the job."""
    requeue: Any = signal.getsignal(signal.SIGUSR2)
    warned = False

    def stop(number: int, _frame: FrameType | None) -> None:
        """Outside of training, where the engine does not handle SIGTERM, every file is complete at any time."""
        raise Interrupted("Stopped outside of training.", signal.SIGUSR2 if warned else number)

    def warn(_number: int, _frame: FrameType | None) -> None:
        nonlocal warned
        warned = True
        signal.raise_signal(signal.SIGTERM)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGUSR2, warn)
    return requeue  # type: ignore[no-any-return]


def _changed(folder: RunDir) -> int:
    """Return when the checkpoint of a run was last written; 0 if there is none."""
    return folder.last.stat().st_mtime_ns if folder.last.exists() else 0


def log(text: str) -> None:
    """Write a line to the log of the job, which is its output."""
    print(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {platform.node()} {text}", flush=True)  # noqa: T201
