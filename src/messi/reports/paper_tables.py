"""A table of results with the paper's number beside each of ours; other files turn it into text."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from messi.core.errors import MessiError
from messi.reports.statistics import Dispersion, Summary

Direction = Literal["up", "down", "none"]
"""Which way a column's values are better."""

ARROWS: dict[Direction, str] = {"up": " ↑", "down": " ↓", "none": ""}
_DISPERSIONS: dict[Dispersion, str] = {
    "deviation": "the sample standard deviation (ddof = 1)",
    "standard error": "the standard error (ddof = 0)",
}


class Published(NamedTuple):
    """A number that the paper prints, and its deviation where it prints one."""

    mean: float
    spread: float | None = None


@dataclass(frozen=True)
class Cell:
    """Our value, the paper's, and what became of runs that gave none; values are in the unit that is shown."""

    ours: Summary | None = None
    paper: Published | None = None
    state: Literal["done", "incomplete", "failed"] = "done"
    """Of the runs that are not in ``ours``."""
    reason: str = ""
    """Why a run failed, or could not be measured."""

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's."""
        return self.ours.mean - self.paper.mean if self.ours and self.paper else None


@dataclass(frozen=True)
class Column:
    """The head of a column of numbers."""

    name: str
    direction: Direction = "up"
    digits: int = 1


@dataclass(frozen=True)
class Row:
    """One method: the texts before the numbers, and a cell for every column."""

    heads: tuple[str, ...]
    cells: tuple[Cell, ...]
    ours: bool = False
    """Whether the method is the paper's own."""


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """What must be known to read the numbers of a table; empty where nothing was trained for them."""

    data: str = ""
    protocol: str = ""
    selection: str = ""
    target_part: str = ""
    seeds: tuple[int, ...] = ()
    dispersion: Dispersion = "deviation"
    version: str
    """Of this package, with the commit where there is one."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Groups of rows under one head."""

    name: str
    """Short, for a file or a label."""
    title: str
    """A few words to stand above it."""
    explanation: str = ""
    """What its rows and columns are, where they do not say it themselves."""
    provenance: Provenance
    heads: tuple[str, ...]
    """Above the texts of a row."""
    columns: tuple[Column, ...]
    groups: tuple[tuple[Row, ...], ...]
    over_seeds: bool = True
    """Whether a cell is a mean over the seeds; if not, a row is of the same runs, and its first cell tells of them."""

    def __post_init__(self) -> None:
        for row in self.rows:
            if (len(row.heads), len(row.cells)) != (len(self.heads), len(self.columns)):
                raise MessiError(
                    f"The row {row.heads} of the table '{self.name}' must have {len(self.heads)} heads and "
                    f"{len(self.columns)} cells, but has {len(row.heads)} and {len(row.cells)}; leave a cell empty "
                    "with Cell()."
                )

    @property
    def rows(self) -> Iterator[Row]:
        """The rows of all groups."""
        return (row for group in self.groups for row in group)

    @property
    def caption(self) -> str:
        """The title and all that is to be known."""
        return f"{self.title}. {self.about}"

    @property
    def about(self) -> str:
        """What the numbers are, how they came about, and what the signs in the cells mean, of those that occur."""
        p = self.provenance
        cells = [cell for row in self.rows for cell in row.cells]
        stated = {"Data": p.data, "Protocol": p.protocol, "Selection": p.selection, "Target part": p.target_part}
        sentences = [
            self.explanation.rstrip("."),
            *(f"{name}: {text}" for name, text in stated.items() if text),
            self._seeds(),
            f"± is {_DISPERSIONS[p.dispersion]}" if any(c.ours and c.ours.spread is not None for c in cells) else "",
            "In brackets: ours minus the paper's" if any(c.difference is not None for c in cells) else "",
            self._bold(),
            "What is empty was not measured" if self.over_seeds and any(c.ours is None for c in cells) else "",
            f"Version: {p.version}",
        ]
        return " ".join(f"{sentence}." for sentence in sentences if sentence)

    @property
    def notes(self) -> tuple[str, ...]:
        """Why runs failed, each reason once."""
        return tuple(dict.fromkeys(cell.reason for row in self.rows for cell in row.cells if cell.reason))

    def is_best(self, cell: Cell, place: int) -> bool:
        """Tell whether no value of ours in the column is better as shown, of those over all seeds; equals have none."""
        direction = self.columns[place].direction
        shown = {value for row in self.rows if (value := self._shown(row.cells[place], place)) is not None}
        if direction == "none" or len(shown) < 2:
            return False
        return self._shown(cell, place) == (max(shown) if direction == "up" else min(shown))

    def _shown(self, cell: Cell, place: int) -> float | None:
        """Return our value as shown; None where it cannot be compared, as it lacks a seed or is not finite."""
        if cell.ours is None or cell.ours.n != len(self.provenance.seeds) or not math.isfinite(cell.ours.mean):
            return None
        return round(cell.ours.mean, self.columns[place].digits)

    def _bold(self) -> str:
        if not any(self.is_best(cell, place) for row in self.rows for place, cell in enumerate(row.cells)):
            return ""
        several = {cell.ours.n for row in self.rows for cell in row.cells if cell.ours} != {len(self.provenance.seeds)}
        return "Bold: the best of a column" + (", of the cells over all seeds" if several else "")

    def _seeds(self) -> str:
        seeds = self.provenance.seeds
        named = ", ".join(map(str, seeds))
        if len(seeds) < 2 or not self.over_seeds:
            return f"Seed{'s' if len(seeds) > 1 else ''} {named}" if seeds else ""
        return f"Mean over seeds {named} (n = {len(seeds)} unless a cell says otherwise)"
