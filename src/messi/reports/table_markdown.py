"""Tables in Markdown: below every row that the paper has, too, a row with its numbers and ours minus them."""

import re
from collections.abc import Iterable

from messi.reports.cell_text import CellText, cell_text
from messi.reports.paper_tables import ARROWS, Row, Table


def markdown(table: Table) -> str:
    """Return the table under its title, what is to be known before it and its notes after it."""
    names = [*map(_escape, table.heads), *(_escape(c.name) + ARROWS[c.direction] for c in table.columns)]
    rule = ["---"] * len(table.heads) + ["---:"] * len(table.columns)
    rows = [line for row in table.rows for line in _lines(table, row)]
    notes = [f"[{place}] {_escape(note)}\n" for place, note in enumerate(table.notes, 1)]
    return "\n".join(
        [f"## {_escape(table.title)}", "", _escape(table.about), "", *map(_line, [names, rule, *rows]), "", *notes]
    )


def _lines(table: Table, row: Row) -> list[list[str]]:
    texts = [cell_text(table, cell, place) for place, cell in enumerate(row.cells)]
    lines = [[*map(_escape, row.heads), *map(_ours, texts)]]
    if any(text.paper for text in texts):
        lines.append(["↳ paper", *[""] * (len(row.heads) - 1), *map(_paper, texts)])
    return lines


def _ours(text: CellText) -> str:
    value = text.mean + (f" ± {text.spread}" if text.spread else "")
    number = f"(n = {text.n})" if text.n else ""
    note = f"[{text.note}]" if text.note else ""
    return " ".join(part for part in (f"**{value}**" if text.best else value, number, text.state, note) if part)


def _paper(text: CellText) -> str:
    spread = f" ± {text.paper_spread}" if text.paper_spread else ""
    return text.paper + spread + (f" ({text.difference})" if text.difference else "")


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escape(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>|~$])", r"\\\1", " ".join(text.split()))
