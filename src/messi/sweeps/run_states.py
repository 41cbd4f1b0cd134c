"""The runs of a plan as plain values, and their state on disk: enough for ``messi status``, which does not load torch.

The list of the runs is also a file in the folder of the plan, because making it takes seconds for thousands of runs.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from messi.core.checksum import file_checksum
from messi.core.config import Bounds
from messi.core.documents import parse_document, read_values, write_document
from messi.core.errors import MessiError
from messi.core.info import version
from messi.core.records import RoleRecord
from messi.core.run_documents import AverageChoice, Result
from messi.core.rundir import PLAN, RunDir

State = Literal["waiting", "started", "paused", "done", "failed"]
ENDED: tuple[State, ...] = ("done", "paused")
"""The states of a run for which nothing is left to do."""
Label = str | int | float
_RUN_LIST = "runs.json"


@dataclass(frozen=True, kw_only=True)
class ListedRun:
    """What the state of a run or average of a plan depends on."""

    name: str
    """Of its folder."""
    labels: dict[str, Label]
    steps: Annotated[int, Bounds(minimum=0)]
    """0 for an average."""
    config: str
    """The checksum of the resolved config."""
    until: int | None = None
    """The step after whose evaluation the run is paused; None if it is finished."""
    choice: AverageChoice | None = None
    """None for a run that is trained."""
    needs: tuple[str, ...] = ()
    """The names of the averaged runs."""


@dataclass(frozen=True)
class RunState:
    """The state of a run on disk."""

    state: State
    reason: str = ""
    """Why the run failed."""
    result: Result | None = None
    """Of a finished run, without the checksums of its files: those of thousands of runs would fill the memory."""


@dataclass(frozen=True, kw_only=True)
class _RunList:
    """The content of the file."""

    version: str
    plan: str
    """The checksum of ``plan.json``."""
    runs: tuple[ListedRun, ...]


def write_run_list(folder: Path, runs: Sequence[ListedRun]) -> None:
    """Write the list of the runs of a plan, after its ``plan.json``."""
    plan = file_checksum(folder / PLAN)
    write_document(folder / _RUN_LIST, _RunList(version=version(), plan=plan, runs=tuple(runs)), indent=None)


def read_run_list(folder: Path) -> tuple[ListedRun, ...] | None:
    """Return the runs of a plan; None if the list is missing, damaged or not that of this plan and version."""
    try:
        found = parse_document(_RunList, read_values(folder / _RUN_LIST, lambda values: values["version"]))
        current = (found.version, found.plan) == (version(), file_checksum(folder / PLAN))
    except (OSError, KeyError, ValueError, MessiError):
        return None
    return found.runs if current else None


def failure_file(folder: Path, name: str) -> Path:
    """Return the file with the reason for which a run of a plan failed."""
    return folder / "failed" / f"{name}.txt"


def read_state(folder: Path, run: ListedRun) -> RunState:
    """Return the state of a run of a plan; reads and checks ``run.json`` and ``result.json`` of a finished run."""
    place = RunDir(folder / "runs" / run.name)
    state = place.state()
    try:
        if state == "done" and (result := place.result_of(run.config, version(), _origin(folder, run))):
            return RunState("done", result=dataclasses.replace(result, files={}))
        if run.until is not None and has_reached(place, run.until):
            return RunState("paused")
    except MessiError as error:  # a damaged file fails one run, not the whole plan
        return RunState("failed", str(error))
    if (failure := failure_file(folder, run.name)).exists():
        return RunState("failed", failure.read_text(encoding="utf-8").strip())
    return RunState("waiting" if state == "new" else "started")


def has_reached(folder: RunDir, step: int) -> bool:
    """Return whether a run was evaluated at a step, which needs no checkpoint: a resumed run repeats it exactly."""
    records = folder.read_records()
    return any(isinstance(record, RoleRecord) and record.step >= step for record in records)


def _origin(folder: Path, run: ListedRun) -> tuple[str, ...]:
    """Return what an average depends on: these very runs, and not earlier ones in the same folders."""
    return (run.choice, *(RunDir(folder / "runs" / name).identity() for name in run.needs)) if run.choice else ()
