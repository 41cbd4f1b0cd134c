"""What a study is: a plan with a report. A file in ``studies/`` is one, and so is every experiment of the paper.

A study states its title and defines

1. ``runs``: what to train;
2. ``measurement``, only if the report needs more than runs record: what to measure on every finished model;
3. ``report``: tables and figures, made from files alone.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from messi.core.config import Bounds, Config
from messi.core.registry import Registry
from messi.reports.plan_page import Section
from messi.studies.common.measuring import Measurement
from messi.studies.common.results import Results
from messi.sweeps.plan import Outcome, Plan, Planned

Repetitions = Annotated[int, Bounds(minimum=1, maximum=1000)]
"""Of every run; a plan with a billion runs would be a mistake."""
STUDIES = Registry("study", "messi.studies")
EXPERIMENTS = Registry("experiment", "messi.experiments")
"""Here, because a plan is read by the name of its study, which may be an experiment."""


@dataclass(frozen=True, kw_only=True)
class Study(Config, ABC):
    """Runs and what is reported about them."""

    registry: ClassVar[Registry | None] = STUDIES
    title: ClassVar[str]
    measurement: ClassVar[Measurement[Any] | None] = None
    """What to measure on every finished model before the report; None if runs record everything."""
    seeds: Repetitions = 3
    """Number of repetitions, with seeds 0, 1, ..."""

    @property
    @abstractmethod
    def lead(self) -> str:
        """A sentence below the title: what the study is about."""

    @property
    def notes(self) -> Mapping[str, str]:
        """What else a reader must know before the numbers, by a short name."""
        return {}

    @property
    def extent(self) -> str:
        """How large the plan is, for a dry run."""
        return ""

    @property
    def compared_with(self) -> str:
        """The method that tables compare all others with; empty if there is none."""
        return ""

    @property
    @abstractmethod
    def default_folder(self) -> Path:
        """The folder of the plan if the user names none."""

    @abstractmethod
    def command(self, folder: Path) -> list[str]:
        """Return the words of the command that repeats the plan in the same folder and so resumes it."""

    def all_seeds(self) -> range:
        """Return the seeds of the runs."""
        return range(self.seeds)

    @abstractmethod
    def runs(self) -> Sequence[Planned]:
        """Return what to train, and averages of these runs."""

    def plan(self, folder: Path) -> Plan:
        """Return the runs in their folder; a study may pause some of them, depending on what is recorded there."""
        return Plan(folder, self.runs())

    def featured(self, results: Results) -> Sequence[Outcome]:
        """Return the runs of which the page shows one per method in detail."""
        return results.outcomes

    @abstractmethod
    def report(self, results: Results) -> list[Section]:
        """Return tables and figures of the finished runs; reads files only."""
