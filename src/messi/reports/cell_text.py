"""The parts of a cell as plain text; every format puts them together in its own way."""

from dataclasses import dataclass

from messi.reports.paper_tables import Cell, Table


@dataclass(frozen=True)
class CellText:
    """What a cell shows; an empty text where there is nothing to show."""

    mean: str
    spread: str
    n: str
    """Where it is not the number of seeds in the caption."""
    best: bool
    state: str
    """``failed`` or ``incomplete``."""
    note: int
    """The number of the note that says why it failed; 0 for none."""
    paper: str
    paper_spread: str
    difference: str


def cell_text(table: Table, cell: Cell, place: int) -> CellText:
    """Return the texts of a cell in the column at ``place``."""
    digits = table.columns[place].digits
    ours, paper = cell.ours, cell.paper
    return CellText(
        mean=number(ours.mean if ours else None, digits),
        spread=number(ours.spread if ours else None, digits),
        n=str(ours.n) if ours and ours.n != len(table.provenance.seeds) else "",
        best=table.is_best(cell, place),
        state="" if cell.state == "done" else cell.state,
        note=table.notes.index(cell.reason) + 1 if cell.reason else 0,
        paper=number(paper.mean if paper else None, digits),
        paper_spread=number(paper.spread if paper else None, digits),
        difference=number(cell.difference, digits, signed=True),
    )


def number(value: float | None, digits: int, *, signed: bool = False) -> str:
    """Return a number with a true minus sign, or nothing."""
    if value is None:
        return ""
    rounded = round(value, digits) + 0.0  # turns -0.0 into 0.0
    text = f"{rounded:{'+' if signed and rounded else ''}.{digits}f}"
    return text.replace("-", "\u2212")
