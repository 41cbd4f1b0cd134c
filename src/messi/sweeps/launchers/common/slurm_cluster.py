"""Questions to Slurm, asked with its own commands. None of them requires accounting."""

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from messi.core.errors import MessiError, unknown_name

_STOPPED = {"CANCELLED", "DEADLINE", "PREEMPTED", "REVOKED", "TIMEOUT"}
_DEATHS = _STOPPED | {"BOOT_FAIL", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY"}
_TIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<clock>\d+(?::\d+){0,2})")
_MINUTES_PER_DAY = 24 * 60


class SilentError(MessiError):
    """Slurm does not answer."""


@dataclass(frozen=True)
class Task:
    """A job, or a task of a job array, as far as Slurm still knows it."""

    id: str
    state: str
    node: str

    @property
    def ended(self) -> bool:
        """Whether it no longer runs or waits."""
        return self.died or self.state == "COMPLETED"

    @property
    def died(self) -> bool:
        """Whether it was stopped. A completed one has done its runs, but a shared disk may show them seconds later."""
        return self.state in _DEATHS

    def exit_code(self) -> str:
        """Return the exit code, and the signal after a colon."""
        try:
            return _fields(_ask("scontrol", "--oneliner", "show", "job", self.id))["ExitCode"]
        except SilentError:
            return "unknown"


@dataclass(frozen=True)
class Partition:
    """A partition and its limits."""

    name: str
    gpus: bool
    default_minutes: int
    """0 if there is no limit, as in sbatch."""
    max_minutes: int


def find_partition(name: str | None) -> Partition:
    """Return a partition by name, or the default one."""
    if shutil.which("sbatch") is None:
        raise MessiError(
            "The Slurm launcher needs the command sbatch, which this machine does not have; run messi on a login node "
            "of the cluster, or use --launcher local."
        )
    lines = _ask("scontrol", "--oneliner", "show", "partition").splitlines()
    partitions = {fields["PartitionName"]: fields for fields in map(_fields, lines) if fields}
    default = next((known for known, fields in partitions.items() if fields.get("Default") == "YES"), None)
    chosen = name or default
    if chosen is None:
        raise MessiError(f"The cluster has no default partition; name one with --partition: {', '.join(partitions)}.")
    if chosen not in partitions:
        raise unknown_name("partition", chosen, partitions)
    fields = partitions[chosen]
    longest = 0 if fields["MaxTime"] == "UNLIMITED" else minutes(fields["MaxTime"])
    usual = longest if fields["DefaultTime"] in ("NONE", "UNLIMITED") else minutes(fields["DefaultTime"])
    return Partition(chosen, "gres/gpu" in fields.get("TRES", ""), usual, longest)


def minutes(time: str) -> int:
    """Return a time limit in whole minutes, read as sbatch reads it."""
    match = _TIME.fullmatch(time)
    if not match:
        raise MessiError(
            "time must be a number of minutes, such as 90, or hours:minutes:seconds, such as 12:00:00, or days before "
            f"these, such as 2-00:00:00, but is '{time}'."
        )
    parts = [int(part) for part in match["clock"].split(":")]
    if match["days"] is not None:  # days-hours[:minutes[:seconds]]
        hours, mins, seconds = [*parts, 0, 0][:3]
        return int(match["days"]) * _MINUTES_PER_DAY + hours * 60 + mins + (seconds > 0)
    if len(parts) == 3:
        return parts[0] * 60 + parts[1] + (parts[2] > 0)
    return parts[0] + (parts[1:] > [0])  # minutes[:seconds]


def largest_array() -> int:
    """Return the largest number of tasks of a job array."""
    found = re.search(r"^MaxArraySize\s*=\s*(\d+)", _ask("scontrol", "show", "config"), re.MULTILINE)
    return int(found[1]) if found else 1


def find_tasks(job_name: str) -> Mapping[tuple[str, int], Task]:
    """Return the tasks of the user's jobs of a name, by their job's comment and their number.

    Slurm forgets a job some minutes after its end.
    """
    wanted = ("--noheader", "--array", "--states=all", f"--name={job_name}", "--format=%F|%K|%T|%N|%k")
    tasks = {}
    for line in _ask("squeue", "--me", *wanted).splitlines():
        job, number, state, node, comment = line.split("|", 4)
        is_array = number.isdigit()
        task = Task(f"{job}_{number}" if is_array else job, state, node)
        tasks[comment, int(number) if is_array else 0] = task
    return tasks


def is_running(job: str) -> bool:
    """Return whether a job, or a task such as 12_3 of a job array, runs and has not been cancelled."""
    return _ask("squeue", "--noheader", f"--jobs={job}", "--format=%T").strip() == "RUNNING"


def cancel(job_name: str) -> None:
    """Cancel all jobs of a name."""
    _ask("scancel", "--me", f"--name={job_name}")


def _ask(*command: str) -> str:
    """Return the output of a command."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise SilentError(f"Slurm does not answer ({said}); check with 'scontrol ping' that its controller is up.")
    return done.stdout


def _fields(line: str) -> dict[str, str]:
    return dict(word.split("=", 1) for word in line.split() if "=" in word)
