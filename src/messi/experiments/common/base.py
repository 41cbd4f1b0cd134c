"""What every experiment of the paper offers: its runs, and what is made of their results."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from messi.core.config import Bounds, Config
from messi.core.registry import Registry
from messi.experiments.common.results import Results
from messi.reports.paper_tables import Table
from messi.sweeps.plan import Planned

EXPERIMENTS = Registry("experiment", "messi.experiments")
Scale = Literal["full", "small"]


@dataclass(frozen=True)
class Text:
    """Findings in words and simple tables."""

    name: str
    markdown: str


@dataclass(frozen=True)
class Figure:
    """A picture and what it shows."""

    name: str
    caption: str
    svg: str


Section = Table | Figure | Text


@dataclass(frozen=True, kw_only=True)
class Experiment(Config, ABC):
    """A table or figure of the paper."""

    registry: ClassVar[Registry | None] = EXPERIMENTS
    title: ClassVar[str]
    claim: ClassVar[str]
    """What the paper says that it shows."""
    cost: ClassVar[str]
    """What the full scale takes, measured where it was."""
    scale: Scale = "full"
    """As in the paper, or small enough for 2 CPU cores; a small result says what was reduced."""
    seeds: Annotated[int, Bounds(minimum=1)] = 3
    """Number of runs of everything, with the seeds 0, 1 and so on; the small scale has one."""

    @property
    @abstractmethod
    def reduced(self) -> str:
        """What is less at the small scale, which finishes on 2 CPU cores; empty where nothing has to be."""

    @property
    def compared_with(self) -> str:
        """The method that the tables compare all others with; empty where there is none."""
        return ""

    @property
    def small(self) -> bool:
        """Whether this is the reduced version."""
        return self.scale == "small"

    def all_seeds(self) -> range:
        """Return the seeds of the runs."""
        return range(1 if self.small else self.seeds)

    @abstractmethod
    def runs(self) -> list[Planned]:
        """Return what is to be trained."""

    @abstractmethod
    def sections(self, results: Results) -> list[Section]:
        """Return tables and figures of the results so far."""
