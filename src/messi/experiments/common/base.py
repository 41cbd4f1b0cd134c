"""What an experiment is: a study that reproduces a table or figure of the paper.

To add one, write a file in ``experiments/`` with a class of the same name that states title, claim and cost, and
defines what every study does (``studies/common/base.py``).
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from messi.core.registry import Registry
from messi.studies.common.base import EXPERIMENTS, Repetitions, Study

Scale = Literal["full", "small"]


@dataclass(frozen=True, kw_only=True)
class Experiment(Study):
    """A table or figure of the paper."""

    registry: ClassVar[Registry | None] = EXPERIMENTS
    claim: ClassVar[str]
    """What the paper concludes from it."""
    cost: ClassVar[str]
    """Of the full scale: runs, steps and, if known, the measured time."""
    scale: Scale = "full"
    """As in the paper, or small enough for 2 CPU cores; a small result states what was reduced."""
    seeds: Repetitions = 3
    """Number of repetitions, with seeds 0, 1, ...; the small scale uses one."""

    @property
    @abstractmethod
    def reduced(self) -> str:
        """What the small scale reduces to finish on 2 CPU cores; empty if nothing needs to be reduced."""

    @property
    def lead(self) -> str:
        """What the paper concludes."""
        return f"The paper's claim: {self.claim}"

    @property
    def notes(self) -> Mapping[str, str]:
        """What the small scale reduces."""
        reduced = self.small and self.reduced
        return {"Reduced": f"{self.reduced}; its numbers cannot be compared with the paper's"} if reduced else {}

    @property
    def extent(self) -> str:
        """The cost of the full scale, or what the small scale reduces."""
        return f"reduced: {self.reduced}" if self.small and self.reduced else f"cost: {self.cost}"

    @property
    def default_folder(self) -> Path:
        """The folder of the plan if the user names none."""
        return Path("reproduce") / (f"{self.name}-small" if self.small else self.name)

    def command(self, folder: Path) -> list[str]:
        """Return the words of the command that repeats the plan in the same folder and so resumes it."""
        default = type(self)().to_dict()
        words = ["messi", "reproduce", self.name]
        for name, value in self.to_dict().items():
            if value != default[name]:
                values = value if isinstance(value, list) else [value]
                words += [f"--{name.replace('_', '-')}", *map(str, values)]
        return words if folder == self.default_folder else [*words, "--out", str(folder)]

    @property
    def small(self) -> bool:
        """Whether this is the reduced version."""
        return self.scale == "small"

    def all_seeds(self) -> range:
        """Return the seeds of the runs."""
        return range(1 if self.small else self.seeds)
