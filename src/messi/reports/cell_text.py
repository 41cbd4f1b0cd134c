"""The parts of a cell as plain text; every format puts them together in its own way."""

import math
from dataclasses import dataclass

from messi.reports.paper_tables import Cell, Table


@dataclass(frozen=True)
class CellText:
    """What a cell shows; an empty text where there is nothing to show."""

    mean: str
    value: str
    """The mean with all its digits, to sort by; empty where it is not finite."""
    spread: str
    n: str
    """Where it is not the number of seeds in the caption."""
    best: bool
    state: str
    """``failed`` or ``incomplete``."""
    missing: str
    """What an incomplete cell lacks."""
    note: int
    """The number of the note that says why it failed; 0 for none."""
    paper: str
    paper_spread: str
    difference: str


def cell_text(table: Table, cell: Cell, place: int) -> CellText:
    """Return the texts of a cell in the column at ``place``."""
    digits = table.columns[place].digits
    tells = table.over_seeds or place == 0
    ours, paper = cell.ours, cell.paper
    return CellText(
        mean=number(ours.mean if ours else None, digits),
        value=str(ours.mean) if ours and math.isfinite(ours.mean) else "",
        spread=number(ours.spread if ours else None, digits),
        n=str(ours.n) if ours and table.over_seeds and ours.n != len(table.provenance.seeds) else "",
        best=table.is_best(cell, place),
        state=cell.state if tells and cell.state != "done" else "",
        missing=_missing(table, cell) if tells and cell.state == "incomplete" else "",
        note=table.notes.index(cell.reason) + 1 if tells and cell.reason else 0,
        paper=number(paper.mean if paper else None, digits),
        paper_spread=number(paper.spread if paper else None, digits),
        difference=number(cell.difference, digits, signed=True),
    )


def _missing(table: Table, cell: Cell) -> str:
    if not table.over_seeds:
        return "runs are missing"
    total = len(table.provenance.seeds)
    missing = total - (cell.ours.n if cell.ours else 0)
    return f"{missing} of {total} seed{'s' if total > 1 else ''} {'is' if missing == 1 else 'are'} missing"


def number(value: float | None, digits: int, *, signed: bool = False) -> str:
    """Return a number with a true minus sign, or nothing."""
    if value is None:
        return ""
    rounded = round(value, digits) + 0.0  # turns -0.0 into 0.0
    text = f"{rounded:{'+' if signed and rounded else ''}.{digits}f}"
    return text.replace("-", "\u2212")
