"""A plan: many runs in one folder. Its state is read from disk, so a killed plan can be resumed."""

import functools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from messi.core.checksum import values_checksum
from messi.core.errors import MessiError
from messi.core.files import write_text
from messi.core.run_documents import AverageChoice, Result
from messi.core.rundir import RunDir
from messi.engine.config import RunConfig
from messi.sweeps.run_states import ENDED, Label, ListedRun, State, failure_file, read_state, write_run_list

__all__ = ["ENDED", "Label", "Outcome", "Plan", "Planned", "PlannedAverage", "PlannedRun", "State", "write_failure"]


@dataclass(frozen=True)
class PlannedRun:
    """A run of a plan, and its place in the plan's tables."""

    labels: Mapping[str, Label]
    """Such as method, target and seed; together they are unique in the plan."""
    config: RunConfig
    """Its start may be the name of another run of the plan."""
    until: int | None = None
    """Pause the run after the evaluation at this step; None: finish it."""

    @functools.cached_property
    def name(self) -> str:
        """A readable name, which is also the name of the folder."""
        return _folder_name(self.labels, self._resolved.fingerprint())

    @functools.cached_property
    def listed(self) -> ListedRun:
        """What its state on disk depends on."""
        config = values_checksum(self._resolved.to_dict())
        steps = self._resolved.training.steps
        return ListedRun(name=self.name, labels=dict(self.labels), steps=steps, config=config, until=self.until)

    @functools.cached_property
    def _resolved(self) -> RunConfig:
        return self.config.resolved()

    @property
    def needs(self) -> Sequence[str]:
        """The names of the runs that must be finished first."""
        return [self.config.start] if self.config.start else []

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for :func:`messi.sweeps.one_run.do_run`."""
        return self.config.to_dict() | ({} if self.until is None else {"until": self.until})


@dataclass(frozen=True)
class PlannedAverage:
    """An average of runs of a plan, and its place in the plan's tables; otherwise it is like a run."""

    labels: Mapping[str, Label]
    members: Sequence[PlannedRun]
    choice: AverageChoice
    until: ClassVar[None] = None

    @property
    def config(self) -> RunConfig:
        """The config of the first run."""
        return self.members[0].config

    @functools.cached_property
    def name(self) -> str:
        """A readable name, which is also the name of the folder."""
        return _folder_name(self.labels, values_checksum({"choice": self.choice, "runs": self.needs})[:12])

    @functools.cached_property
    def listed(self) -> ListedRun:
        """What its state on disk depends on."""
        config, needs = self.members[0].listed.config, tuple(self.needs)
        return ListedRun(
            name=self.name, labels=dict(self.labels), steps=0, config=config, choice=self.choice, needs=needs
        )

    @property
    def needs(self) -> Sequence[str]:
        """The names of the runs that must be finished first."""
        return [member.name for member in self.members]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for :func:`messi.sweeps.one_run.do_run`."""
        parts = {"data": self.config.data.to_dict(), "algorithm": self.config.algorithm.to_dict()}
        return {"average": self.needs, "choice": self.choice, **parts}


Planned = PlannedRun | PlannedAverage


def _folder_name(labels: Mapping[str, Label], digits: str) -> str:
    words = "_".join(f"{key}{value}" if isinstance(value, int) else str(value) for key, value in labels.items())
    return f"{re.sub(r'[^A-Za-z0-9.=+_-]+', '-', words)}_{digits}"


@dataclass(frozen=True)
class Outcome:
    """The state of a planned run or average."""

    run: Planned
    path: Path
    state: State
    reason: str = ""
    """Why the run failed."""
    found: Result | None = None
    """The result of a finished run, as read when its state was."""

    @property
    def labels(self) -> Mapping[str, Label]:
        """The labels of the run."""
        return self.run.labels

    def result(self) -> Result:
        """Return the result of a finished run."""
        return self.found or RunDir(self.path).read_result()


@dataclass(frozen=True)
class Plan:
    """Runs and averages of them, and the folder that contains them."""

    folder: Path
    runs: Sequence[Planned]

    def __post_init__(self) -> None:
        names = Counter(run.name for run in self.runs)
        if twice := sorted(name for name, number in names.items() if number > 1):
            raise MessiError(f"Every run of a plan must have its own name, but several are called '{twice[0]}'.")

    def path(self, run: Planned) -> Path:
        """Return the folder of a run."""
        return self.folder / "runs" / run.name

    def outcome(self, run: Planned) -> Outcome:
        """Return the state of a run."""
        found = read_state(self.folder, run.listed)
        return Outcome(run, self.path(run), found.state, found.reason, found.result)

    def write_run_list(self) -> None:
        """Write the list of the runs for ``messi status``, after ``plan.json``."""
        write_run_list(self.folder, [run.listed for run in self.runs])

    def stages(self) -> "list[Plan]":
        """Return parts of the plan to execute one after the other: no run needs another one of its part."""
        names = {run.name: run for run in self.runs}

        @functools.cache
        def stage(name: str) -> int:
            return 1 + max((stage(needed) for needed in names[name].needs if needed in names), default=-1)

        by_stage: dict[int, list[Planned]] = {}
        for name, run in names.items():
            by_stage.setdefault(stage(name), []).append(run)
        return [Plan(self.folder, by_stage[number]) for number in sorted(by_stage)]

    def outcomes(self) -> list[Outcome]:
        """Return the state of every run."""
        return [self.outcome(run) for run in self.runs]

    def unfinished(self) -> list[Planned]:
        """Return the runs that are neither finished nor paused; failures noted for the others are deleted."""
        return [run for run in self.runs if self.record_end(run, None).state not in ENDED]

    def record_end(self, run: Planned, failure: str | None) -> Outcome:
        """Record how an attempt at a run ended, and return the state of the run.

        A finished run has not failed, regardless of ``failure``: another process may have finished it.
        """
        outcome = self.outcome(run)
        if outcome.state in ENDED:
            self.forget_failure(run)
        elif failure is not None:
            self.note_failure(run, failure)
            return self.outcome(run)
        return outcome

    def note_failure(self, run: Planned, reason: str) -> None:
        """Write the reason for a failure next to the runs, because the run may not have a folder yet."""
        write_failure(self.folder, run.name, reason)

    def forget_failure(self, run: Planned) -> None:
        """Delete the reason for an earlier failure, before a new attempt."""
        self._failure(run).unlink(missing_ok=True)

    def unplanned(self) -> list[str]:
        """Return the names of run folders that belong to no run of the plan."""
        own = {run.name for run in self.runs}
        folder = self.folder / "runs"
        places = folder.iterdir() if folder.is_dir() else ()
        return sorted(place.name for place in places if place.is_dir() and place.name not in own)

    def unplanned_note(self) -> str:
        """Return one line that names unplanned folders and explains them; empty if there are none."""
        if not (names := self.unplanned()):
            return ""
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        return (
            f"left out  {names[0]}{more} in {self.folder / 'runs'}: not part of this plan; "
            "different options, or a differently written path, give different runs"
        )

    def _failure(self, run: Planned) -> Path:
        return failure_file(self.folder, run.name)


def write_failure(plan: Path, name: str, reason: str) -> None:
    """Write the reason for the failure of a run into the folder of its plan; a job on another machine does this."""
    file = failure_file(plan, name)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, f"{reason}\n")
