"""The one table of all pages, files and experiments: columns, rows of cells, and how the numbers were obtained.

``table_formats`` writes it as Markdown, LaTeX, CSV and HTML.
"""

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from messi.core.errors import MessiError
from messi.reports.number_format import decimal, significant
from messi.reports.statistics import Dispersion, Summary

Direction = Literal["up", "down", "none"]
"""Which values of a column are better: higher, lower, or neither."""

ARROWS: dict[Direction, str] = {"up": " ↑", "down": " ↓", "none": ""}
_DISPERSIONS: dict[Dispersion, str] = {
    "deviation": "the sample standard deviation (ddof = 1)",
    "standard error": "the standard error (ddof = 0)",
}


class Published(NamedTuple):
    """A number printed in the paper, with its deviation if the paper gives one."""

    mean: float
    spread: float | None = None


@dataclass(frozen=True)
class Cell:
    """Our value, the paper's value, and the state of runs that are missing; values are in the unit that is shown."""

    ours: Summary | None = None
    paper: Published | None = None
    state: Literal["done", "incomplete", "failed"] = "done"
    """Of the runs that ``ours`` does not include."""
    reason: str = ""
    """Why a run failed or could not be measured."""
    note: str = ""
    """Shown after the value, such as a number of examples or the name of a domain."""
    text: str = ""
    """Shown instead of a number."""

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's."""
        return self.ours.mean - self.paper.mean if self.ours and self.paper else None


@dataclass(frozen=True)
class Column:
    """The head of a column, and how its numbers are shown."""

    name: str
    direction: Direction = "up"
    digits: int | None = 1
    """Decimals; None for three significant digits."""
    meaning: str = ""
    """One or two sentences for readers who do not know the measure."""
    look: int | None = None
    """The place on the page of the run that the column is about; it selects colour and dashes."""

    def show(self, value: float | None, *, signed: bool = False) -> str:
        """Return a value as text; empty for None."""
        if value is None:
            return ""
        return significant(value) if self.digits is None else decimal(value, self.digits, signed=signed)


@dataclass(frozen=True)
class Row:
    """One method, run or domain: the texts before the numbers, and a cell for every column."""

    heads: tuple[str, ...]
    cells: tuple[Cell, ...]
    highlight: bool = False
    """Whether to shade the row: that of the paper's own method."""
    look: int | None = None
    """The place on the page of the run that the row is about; it selects colour and dashes."""
    badge: str = ""
    """The role of the domain in the second head, which is then shown as a badge."""


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """What a reader needs to know to judge the numbers; empty where nothing was trained."""

    data: str = ""
    protocol: str = ""
    selection: str = ""
    target_part: str = ""
    seeds: tuple[int, ...] = ()
    dispersion: Dispersion = "deviation"
    version: str
    """Of this package, with the commit if there is one."""


@dataclass(frozen=True)
class CellText:
    """The parts of a cell as text; a part that does not apply is empty."""

    mean: str
    value: str
    """The mean with all its digits, to sort by; empty if it is not finite."""
    spread: str
    n: str
    """The number of seeds if it differs from that in the caption."""
    best: bool
    state: str
    """``failed`` or ``incomplete``."""
    missing: str
    """What an incomplete cell lacks."""
    footnote: int
    """The number of the footnote that states why it failed; 0 for none."""
    paper: str
    paper_spread: str
    difference: str
    note: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Table:
    """Groups of rows under one head."""

    name: str
    """Short, for a file or a label."""
    title: str = ""
    """A few words, shown above the table."""
    explanation: str = ""
    """What rows and columns mean, if their heads do not state it."""
    provenance: Provenance | None = None
    """None on a page that states it elsewhere."""
    heads: tuple[str, ...]
    """Above the texts of a row."""
    columns: tuple[Column, ...]
    groups: tuple[tuple[Row, ...], ...]
    over_seeds: bool = True
    """Whether a cell is a mean over seeds. If not, all cells of a row come from the same runs, and only the first one
    shows their state."""

    def __post_init__(self) -> None:
        for row in self.rows:
            if (len(row.heads), len(row.cells)) != (len(self.heads), len(self.columns)):
                raise MessiError(
                    f"The row {row.heads} of the table '{self.name}' must have {len(self.heads)} heads and "
                    f"{len(self.columns)} cells, but has {len(row.heads)} and {len(row.cells)}; use Cell() for an "
                    "empty cell."
                )

    @property
    def rows(self) -> Iterator[Row]:
        """The rows of all groups."""
        return (row for group in self.groups for row in group)

    @property
    def caption(self) -> str:
        """The title and ``about``."""
        return f"{self.title}. {self.about}"

    @property
    def about(self) -> str:
        """What the numbers are and how they were obtained; explains only the symbols that occur in the cells."""
        p = self.provenance
        cells = [cell for row in self.rows for cell in row.cells]
        stated = (
            {"Data": p.data, "Protocol": p.protocol, "Selection": p.selection, "Target part": p.target_part}
            if p
            else {}
        )
        dispersion = _DISPERSIONS[p.dispersion if p else "deviation"]
        sentences = [
            self.explanation.rstrip("."),
            *(f"{name}: {text}" for name, text in stated.items() if text),
            self._about_seeds(),
            f"± is {dispersion}" if any(c.ours and c.ours.spread is not None for c in cells) else "",
            "In brackets: ours minus the paper's" if any(c.difference is not None for c in cells) else "",
            self._about_bold(),
            "Empty cells were not measured" if p and self.over_seeds and any(c.ours is None for c in cells) else "",
            f"Version: {p.version}" if p else "",
        ]
        return " ".join(f"{sentence}." for sentence in sentences if sentence)

    @functools.cached_property
    def footnotes(self) -> tuple[str, ...]:
        """Why runs failed, each reason once."""
        return tuple(dict.fromkeys(cell.reason for row in self.rows for cell in row.cells if cell.reason))

    def texts(self, row: Row) -> list[CellText]:
        """Return the cells of a row as text."""
        return [self._text(cell, place) for place, cell in enumerate(row.cells)]

    def is_best(self, cell: Cell, place: int) -> bool:
        """Return whether no other cell of the column is better as shown; only cells over all seeds are compared."""
        best = self._best[place]
        return best is not None and self._shown(cell, place) == best

    @functools.cached_property
    def _best(self) -> list[float | None]:
        """The best value of every column as shown; None if there is nothing to compare."""
        best: list[float | None] = []
        for place, column in enumerate(self.columns):
            cells = [row.cells[place] for row in self.rows] if column.direction != "none" else []
            shown = {value for cell in cells if (value := self._shown(cell, place)) is not None}
            best.append((max if column.direction == "up" else min)(shown) if len(shown) > 1 else None)
        return best

    @property
    def _seeds(self) -> tuple[int, ...]:
        return self.provenance.seeds if self.provenance else ()

    def _shown(self, cell: Cell, place: int) -> float | None:
        """Return our value as shown; None if it lacks a seed or is not finite, so that it cannot be compared."""
        ours, digits = cell.ours, self.columns[place].digits
        if ours is None or not math.isfinite(ours.mean) or (self.provenance and ours.n != len(self._seeds)):
            return None
        return ours.mean if digits is None else round(ours.mean, digits)

    def _about_bold(self) -> str:
        if not any(self.is_best(cell, place) for row in self.rows for place, cell in enumerate(row.cells)):
            return ""
        several = {cell.ours.n for row in self.rows for cell in row.cells if cell.ours} != {len(self._seeds)}
        return "Bold: the best of a column" + (", of the cells over all seeds" if self.provenance and several else "")

    def _about_seeds(self) -> str:
        seeds = self._seeds
        named = ", ".join(map(str, seeds))
        if len(seeds) < 2 or not self.over_seeds:
            return f"Seed{'s' if len(seeds) > 1 else ''} {named}" if seeds else ""
        return f"Mean over seeds {named} (n = {len(seeds)} unless a cell says otherwise)"

    def _text(self, cell: Cell, place: int) -> CellText:
        column = self.columns[place]
        states_runs = self.over_seeds or place == 0
        ours, paper = cell.ours, cell.paper
        return CellText(
            mean=column.show(ours.mean if ours else None),
            value=str(ours.mean) if ours and math.isfinite(ours.mean) else "",
            spread=column.show(ours.spread if ours else None),
            n=str(ours.n) if ours and self.provenance and self.over_seeds and ours.n != len(self._seeds) else "",
            best=self.is_best(cell, place),
            state=cell.state if states_runs and cell.state != "done" else "",
            missing=self._missing(cell) if states_runs and cell.state == "incomplete" else "",
            footnote=self.footnotes.index(cell.reason) + 1 if states_runs and cell.reason else 0,
            paper=column.show(paper.mean if paper else None),
            paper_spread=column.show(paper.spread if paper else None),
            difference=column.show(cell.difference, signed=True),
            note=cell.note,
            text=cell.text,
        )

    def _missing(self, cell: Cell) -> str:
        if not self.over_seeds:
            return "runs are missing"
        total = len(self._seeds)
        missing = total - (cell.ours.n if cell.ours else 0)
        return f"{missing} of {total} seed{'s' if total > 1 else ''} {'is' if missing == 1 else 'are'} missing"
