"""Tables as CSV: one line per cell, with everything that is needed to read the number without the rest."""

import csv
import io
from dataclasses import asdict

from messi.core.text import spreadsheet_cell
from messi.reports.paper_tables import Cell, Column, Table

_CELL = ("column", "better", "mean", "spread", "n", "paper", "paper_spread", "difference", "state", "reason")


def as_csv(table: Table) -> str:
    """Return one line for every cell, numbers unrounded; what was not measured is empty."""
    provenance = {**asdict(table.provenance), "seeds": " ".join(map(str, table.provenance.seeds))}
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(spreadsheet_cell, ["table", *table.heads, *_CELL, *provenance]))
    for row in table.rows:
        for column, cell in zip(table.columns, row.cells, strict=True):
            values = [table.name, *row.heads, *_values(column, cell), *provenance.values()]
            writer.writerow(map(spreadsheet_cell, values))
    return out.getvalue()


def _values(column: Column, cell: Cell) -> list[object]:
    ours = (cell.ours.mean, cell.ours.spread, cell.ours.n) if cell.ours else (None, None, None)
    state = "empty" if cell.state == "done" and cell.ours is None else cell.state
    return [column.name, column.direction, *ours, *(cell.paper or (None, None)), cell.difference, state, cell.reason]
