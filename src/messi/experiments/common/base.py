"""What an experiment is: a table or figure of the paper as runs, measurements and a report.

To add one, write a file in ``experiments/`` with a class of the same name that states title, claim and cost and defines

1. ``runs``: what to train;
2. ``measurement``, only if the report needs more than runs record: what to measure on every finished model;
3. ``report``: tables and figures, made from files alone.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from messi.core.config import Bounds, Config
from messi.core.registry import Registry
from messi.experiments.common.measuring import Measurement
from messi.experiments.common.results import Results
from messi.reports.plan_page import Section
from messi.sweeps.plan import Planned

EXPERIMENTS = Registry("experiment", "messi.experiments")
Scale = Literal["full", "small"]


@dataclass(frozen=True, kw_only=True)
class Experiment(Config, ABC):
    """A table or figure of the paper."""

    registry: ClassVar[Registry | None] = EXPERIMENTS
    title: ClassVar[str]
    claim: ClassVar[str]
    """What the paper concludes from it."""
    cost: ClassVar[str]
    """Of the full scale: runs, steps and, if known, the measured time."""
    measurement: ClassVar[Measurement[Any] | None] = None
    """What to measure on every finished model before the report; None if runs record everything."""
    scale: Scale = "full"
    """As in the paper, or small enough for 2 CPU cores; a small result states what was reduced."""
    seeds: Annotated[int, Bounds(minimum=1)] = 3
    """Number of repetitions, with seeds 0, 1, ...; the small scale uses one."""

    @property
    @abstractmethod
    def reduced(self) -> str:
        """What the small scale reduces to finish on 2 CPU cores; empty if nothing needs to be reduced."""

    @property
    def compared_with(self) -> str:
        """The method that tables compare all others with; empty if there is none."""
        return ""

    @property
    def small(self) -> bool:
        """Whether this is the reduced version."""
        return self.scale == "small"

    def all_seeds(self) -> range:
        """Return the seeds of the runs."""
        return range(1 if self.small else self.seeds)

    @abstractmethod
    def runs(self) -> Sequence[Planned]:
        """Return what to train, and averages of these runs."""

    @abstractmethod
    def report(self, results: Results) -> list[Section]:
        """Return tables and figures of the finished runs; reads files only."""
