"""A plan: many runs in one folder. What was done and what failed is what lies on disk, so a killed plan goes on."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from messi.core.errors import MessiError
from messi.core.files import write_text
from messi.core.info import version
from messi.core.run_documents import Result
from messi.core.rundir import RunDir
from messi.engine.config import RunConfig

State = Literal["waiting", "started", "done", "failed"]
Label = str | int | float


@dataclass(frozen=True)
class Planned:
    """A run of a plan, and what it stands for in the plan's tables."""

    labels: Mapping[str, Label]
    """Such as method, target and seed; no other run of the plan has the same."""
    config: RunConfig

    @property
    def name(self) -> str:
        """A name for people and for the file system."""
        words = "_".join(
            f"{key}{value}" if isinstance(value, int) else str(value) for key, value in self.labels.items()
        )
        return f"{re.sub(r'[^A-Za-z0-9.=+_-]+', '-', words)}_{self.config.resolved().fingerprint()}"


@dataclass(frozen=True)
class Outcome:
    """How a planned run stands."""

    run: Planned
    path: Path
    state: State
    reason: str = ""
    """Why it failed."""

    @property
    def labels(self) -> Mapping[str, Label]:
        """What the run stands for."""
        return self.run.labels

    def result(self) -> Result:
        """Return what a finished run found."""
        return RunDir(self.path).read_result()


@dataclass(frozen=True)
class Plan:
    """Runs, and the folder that they go to."""

    folder: Path
    runs: Sequence[Planned]

    def __post_init__(self) -> None:
        names = [run.name for run in self.runs]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise MessiError(f"A plan names every run differently, but has several '{twice[0]}'.")

    def path(self, run: Planned) -> Path:
        """Return the folder of a run."""
        return self.folder / "runs" / run.name

    def outcome(self, run: Planned) -> Outcome:
        """Return how a run stands."""
        folder = RunDir(self.path(run))
        try:
            if folder.is_finished(run.config.resolved().to_dict(), version()):
                folder.read_result()
                return Outcome(run, folder.path, "done")
        except MessiError as error:  # a damaged file fails one run, not the tables of all others
            return Outcome(run, folder.path, "failed", str(error))
        if self._failure(run).exists():
            return Outcome(run, folder.path, "failed", self._failure(run).read_text(encoding="utf-8").strip())
        return Outcome(run, folder.path, "waiting" if folder.state() == "new" else "started")

    def outcomes(self) -> list[Outcome]:
        """Return how all runs stand."""
        return [self.outcome(run) for run in self.runs]

    def strangers(self) -> list[str]:
        """Return the names of folders among the runs' that belong to no run of the plan."""
        own = {run.name for run in self.runs}
        folder = self.folder / "runs"
        places = folder.iterdir() if folder.is_dir() else ()
        return sorted(place.name for place in places if place.is_dir() and place.name not in own)

    def strangers_in_words(self) -> str:
        """Say in one line which folders those are and why they are left out; empty where there are none."""
        if not (strangers := self.strangers()):
            return ""
        more = f" and {len(strangers) - 1} more" if len(strangers) > 1 else ""
        return (
            f"left out  {strangers[0]}{more} in {self.folder / 'runs'}: not of this plan; "
            "other options, or a path that is spelled otherwise, make other runs"
        )

    def note_failure(self, run: Planned, reason: str) -> None:
        """Keep the reason of a failure beside the runs: the run's own folder may not even have begun."""
        self._failure(run).parent.mkdir(parents=True, exist_ok=True)
        write_text(self._failure(run), f"{reason}\n")

    def forget_failure(self, run: Planned) -> None:
        """Let a run that failed be tried again."""
        self._failure(run).unlink(missing_ok=True)

    def _failure(self, run: Planned) -> Path:
        return self.folder / "failed" / f"{run.name}.txt"
