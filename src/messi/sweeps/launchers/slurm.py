"""Run a plan as job arrays of a Slurm cluster whose nodes share the disk that holds the plan.

Slurm knows the jobs: their name is that of the plan, and their comment is the name of a file in ``PLAN/slurm/batches``
with the runs of each task. That file is written before the jobs are submitted, so a launcher that was killed at any
time finds its jobs again.
"""

import contextlib
import hashlib
import io
import json
import math
import re
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from messi.core.config import Bounds
from messi.core.errors import MessiError
from messi.core.files import write_text
from messi.sweeps.launchers.common.base import Launcher
from messi.sweeps.launchers.common.slurm_cluster import (
    Partition,
    SilentError,
    Task,
    cancel,
    find_partition,
    find_tasks,
    largest_array,
    minutes,
)
from messi.sweeps.launchers.common.slurm_job import SlurmJob
from messi.sweeps.plan import ENDED, Outcome, Plan, Planned

_LOOK_S = 0.5
"""How often the plan's folder is read for runs that ended."""
_ASK_S = 10.0
"""How often Slurm is asked for jobs that ended without a result."""
_WARNING_S = 90
"""How long before its time limit a job is told to save a checkpoint."""
_ANY_NUMBER = 10**6
_ADVICE = {
    "OUT_OF_MEMORY": "; request more with --memory",
    "TIMEOUT": "; allow more with --time",
    "CANCELLED": " by a user or an administrator",
}
_Place = tuple[str, int]
"""A batch and the number of a task in it."""


@dataclass(frozen=True, kw_only=True)
class Slurm(Launcher):
    """Job arrays of a Slurm cluster. Its nodes must share the disk that holds the plan."""

    partition: str | None = None
    """Partition of the jobs; by default that of the cluster."""
    time: str | None = None
    """Time limit of a job, such as 90 (minutes), 12:00:00 or 2-00:00:00; by default that of the partition."""
    cpus_per_run: Annotated[int, Bounds(minimum=1)] = 1
    """Number of CPU cores of a job."""
    gpus_per_run: Annotated[int, Bounds(minimum=0)] | None = None
    """Number of GPUs of a job, which share the steps of its run; by default 1 if the partition has GPUs."""
    memory: str | None = None
    """Memory of a job, such as 16G; by default that of the partition."""
    at_a_time: Annotated[int, Bounds(minimum=1)] | None = None
    """Largest number of jobs that run at a time; by default as many as Slurm starts."""
    runs_per_job: Annotated[int, Bounds(minimum=1)] = 1
    """Number of runs that a job does one after another; more saves the start of a job for each short run."""
    sbatch: tuple[str, ...] = ()
    """Further options of sbatch, such as account=vision qos=high exclusive."""
    detach: bool = False
    """Submit the jobs and exit; repeating the command reports the results."""

    def __post_init__(self) -> None:
        """Refuse an invalid time."""
        super().__post_init__()
        if self.time is not None:
            minutes(self.time)

    def describe(self, runs: int) -> str:
        """Return the number of jobs, and how many run at a time."""
        jobs = math.ceil(runs / self.runs_per_job)
        return f"in {jobs} Slurm job{'s' * (jobs > 1)}{f', {self.at_a_time} at a time' if self.at_a_time else ''}"

    def check(self) -> None:
        """Refuse a partition that does not exist and a time that it does not allow."""
        self.parameters(find_partition(self.partition))
        _submitit()

    def launch(self, plan: Plan, on_end: Callable[[Outcome], None] = lambda _outcome: None) -> None:
        """Submit every unfinished run that is not already in a job, and wait for all of them unless detached."""
        left = plan.unfinished()
        if not left:
            return
        self.check()
        jobs = _Jobs(plan, self)
        jobs.submit([run for run in left if _work(run) not in jobs.places])
        if self.detach:
            return
        try:
            jobs.wait(left, on_end)
        except KeyboardInterrupt as error:
            raise KeyboardInterrupt(
                f"The Slurm jobs continue; to cancel them, type: scancel --name={jobs.name}."
            ) from error

    def parameters(self, partition: Partition) -> dict[str, Any]:
        """Return submitit's parameters of a job."""
        limit = partition.default_minutes if self.time is None else minutes(self.time)
        if partition.max_minutes and limit > partition.max_minutes:
            raise MessiError(
                f"time must be at most {partition.max_minutes} minutes in the partition {partition.name}, but is "
                f"'{self.time}'; use a shorter one: the jobs save a checkpoint and are requeued when it is reached."
            )
        further: dict[str, Any] = {"requeue": True} | ({"mem": self.memory} if self.memory else {})
        for option in self.sbatch:
            key, equals, value = option.lstrip("-").partition("=")
            further[key] = value if equals else True
        return {
            "partition": partition.name,
            "time": limit,
            "cpus_per_task": self.cpus_per_run,
            "gpus_per_node": (int(partition.gpus) if self.gpus_per_run is None else self.gpus_per_run) or None,
            "array_parallelism": self.at_a_time or _ANY_NUMBER,
            "signal_delay_s": _WARNING_S,
            "stderr_to_stdout": True,
            "wckey": None,
            "srun_args": [f"--cpus-per-task={self.cpus_per_run}"],
            "additional_parameters": further,
        }


class _Jobs:
    """The jobs of a plan: those of this launcher, and those of an earlier one that still wait or run."""

    def __init__(self, plan: Plan, launcher: Slurm) -> None:
        self._plan, self._launcher = plan, launcher
        self._parameters = launcher.parameters(find_partition(launcher.partition))
        self._folder = plan.folder.resolve() / "slurm"
        digest = hashlib.sha256(str(self._folder).encode()).hexdigest()[:6]
        self.name = f"messi-{re.sub(r'[^A-Za-z0-9.-]', '-', plan.folder.resolve().name)}-{digest}"
        self._tasks = find_tasks(self.name)
        self.places: dict[str, _Place] = {}
        """The task of each piece of work."""
        for place, task in self._tasks.items():
            if not task.ended:
                self.places |= dict.fromkeys(self._works(place), place)

    def submit(self, runs: Sequence[Planned]) -> None:
        """Submit a job array; it begins after the earlier jobs that do its runs or those that they need."""
        if not runs:
            return
        size = self._launcher.runs_per_job
        groups = [runs[first : first + size] for first in range(0, len(runs), size)]
        if len(groups) > (largest := largest_array()):
            raise MessiError(
                f"The plan needs {len(groups)} jobs, but this cluster allows job arrays of at most {largest}; "
                f"use --runs-per-job {math.ceil(len(runs) / largest)}."
            )
        batch = uuid.uuid4().hex[:12]
        (self._folder / "batches").mkdir(parents=True, exist_ok=True)
        write_text(self._batch_file(batch), json.dumps([[_work(run) for run in group] for group in groups]))
        for run in runs:
            self._plan.forget_failure(run)
        device = "cuda" if self._parameters["gpus_per_node"] else "cpu"
        works = [[(run.name, run.to_dict()) for run in group] for group in groups]
        devices = max(1, self._launcher.gpus_per_run or 1)
        jobs = [SlurmJob(self._folder.parent, work, self._launcher.cpus_per_run, device, devices) for work in works]
        own = {"job_name": self.name, "comment": batch, "dependency": self._dependency(runs)}
        _submit(self._folder / "jobs", jobs, self._parameters | own)
        for number, group in enumerate(groups):
            self.places |= dict.fromkeys(map(_work, group), (batch, number))

    def wait(self, runs: Sequence[Planned], on_end: Callable[[Outcome], None]) -> None:
        """Wait until every run is finished or has failed."""
        left, asked = {_work(run): run for run in runs}, time.monotonic()
        while left:
            for work, run in list(left.items()):
                if self._has_ended(run):
                    del left[work]
                    on_end(self._plan.record_end(run, None))
            if left and time.monotonic() - asked >= _ASK_S:
                self._record_dead(left)
                asked = time.monotonic()
            elif left:
                time.sleep(_LOOK_S)

    def _record_dead(self, left: Mapping[str, Planned]) -> None:
        """Record why jobs ended without a result, for the run that each was doing; submit its other runs again."""
        try:
            tasks = find_tasks(self.name)
        except SilentError:
            return  # it may answer later
        again: list[Planned] = []
        for place in dict.fromkeys(self.places[work] for work in left):
            task = tasks.get(place)
            if task and not task.died:
                continue
            works = [work for work in self._works(place) if work in left and self.places[work] == place]
            cut_off = [left[work] for work in works if not self._has_ended(left[work])]
            guilty = len(cut_off) if task and task.state == "CANCELLED" else 1
            for run in cut_off[:guilty]:
                self._plan.note_failure(run, self._reason(task))
            again += cut_off[guilty:]
        self.submit(again)

    def _has_ended(self, run: Planned) -> bool:
        return self._plan.outcome(run).state in (*ENDED, "failed")

    def _dependency(self, runs: Sequence[Planned]) -> str | None:
        """Return sbatch's option to begin after the jobs that do these runs, up to another step, or those they need."""
        names = {name for run in runs for name in (run.name, *run.needs)}
        places = {place for work, place in self.places.items() if work.partition("@")[0] in names}
        ids = {self._tasks[place].id for place in places if place in self._tasks}
        return f"afterany:{':'.join(sorted(ids))}" if ids else None

    def _reason(self, task: Task | None) -> str:
        if task is None:
            return f"The Slurm job ended without a result, and Slurm no longer knows why; see {self._folder / 'jobs'}."
        log = self._folder / "jobs" / f"{task.id}_0_log.out"
        if task.state == "FAILED" and not log.exists():
            cancel(self.name)
            raise MessiError(
                f"The node {task.node} cannot see the folder {self._folder}; choose a folder on a disk that all nodes "
                "share, with --out."
            )
        code = f" (exit code {task.exit_code()})" if task.state == "FAILED" else ""
        return (
            f"The Slurm job {task.id} on {task.node or 'no node'} ended with {task.state}{code}"
            f"{_ADVICE.get(task.state, '')}; see {log}."
        )

    def _works(self, place: _Place) -> list[str]:
        """Return the work of a task; none if the plan's folder was deleted since then."""
        batch, number = place
        file = self._batch_file(batch)
        if not file.exists():
            return []
        try:
            return [str(work) for work in json.loads(file.read_text(encoding="utf-8"))[number]]
        except (ValueError, TypeError, LookupError) as error:
            raise MessiError(
                f"{file} is damaged; type: scancel --name={self.name}, then repeat the command."
            ) from error

    def _batch_file(self, batch: str) -> Path:
        return self._folder / "batches" / f"{batch}.json"


def _work(run: Planned) -> str:
    """Return a name for a run up to the step at which it is paused: a later job may continue it."""
    return run.name if run.until is None else f"{run.name}@{run.until}"


def _submitit() -> Any:
    try:
        import submitit  # noqa: PLC0415 (an extra)
    except ImportError as error:
        raise MessiError(
            "The Slurm launcher needs submitit, which is not installed; type: pip install 'messi-dg[slurm]'."
        ) from error
    return submitit


def _submit(folder: Path, jobs: Sequence[SlurmJob], parameters: Mapping[str, Any]) -> None:
    """Submit an array of jobs."""
    submitit = _submitit()
    executor = submitit.SlurmExecutor(folder, max_num_timeout=_ANY_NUMBER)
    executor.update_parameters(**parameters)
    try:
        with contextlib.redirect_stderr(io.StringIO()), executor.batch():  # submitit repeats what sbatch says
            for job in jobs:
                executor.submit(job)
    except submitit.core.utils.FailedJobError as error:
        lines = [line for line in str(error).splitlines() if line.startswith("sbatch: ")] or [str(error)]
        raise MessiError(
            f"Slurm refused the jobs: {lines[-1].removeprefix('sbatch: ').removeprefix('error: ')}."
        ) from error
