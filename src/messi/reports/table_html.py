"""Tables as a piece of HTML for a page; a script can sort its rows by the attribute ``data-value``."""

from messi.reports.cell_text import CellText, cell_text
from messi.reports.paper_tables import ARROWS, Row, Table
from messi.reports.rendering import environment


def html(table: Table) -> str:
    """Return a figure with the table, its caption and its notes."""

    def texts(row: Row) -> list[CellText]:
        return [cell_text(table, cell, place) for place, cell in enumerate(row.cells)]

    return environment().get_template("paper_table.html").render(table=table, arrows=ARROWS, texts=texts)
