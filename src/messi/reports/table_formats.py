"""Writes a table as Markdown, LaTeX, CSV and HTML.

Markdown and LaTeX add a row with the paper's numbers below every row that the paper also has.
"""

import csv
import io
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict

from messi.core.text import spreadsheet_cell
from messi.reports.html import environment
from messi.reports.number_format import with_spread
from messi.reports.table import ARROWS, Cell, CellText, Column, Row, Table

_NEEDS = (
    "% Needs \\usepackage{booktabs,amsmath,adjustbox} and \\usepackage[table]{xcolor}.\n"
    "\\providecommand{\\ms}[1]{\\ensuremath{\\pm #1}}"
)
_MARKDOWN = r"[\\`*_\[\]<>|~$]"
"""Characters that Markdown gives a meaning."""
_SPECIAL = {sign: f"\\{sign}" for sign in "&%$#_{}"} | {
    "\\": "\\textbackslash{}",
    "~": "\\textasciitilde{}",
    "^": "\\textasciicircum{}",
    "<": "\\textless{}",
    ">": "\\textgreater{}",
    "|": "\\textbar{}",
    # At the start of a line these would be arguments of the line break before it.
    "[": "{[}",
    "*": "{*}",
    "±": "$\\pm$",
    "\u2212": "$-$",
    "\u00d7": "$\\times$",
    "\u2013": "--",
    "↑": "$\\uparrow$",
    "↓": "$\\downarrow$",
}
_CSV_COLUMNS = ("column", "better", "mean", "spread", "n", "paper", "paper_spread", "difference", "state", "reason")


def markdown(table: Table) -> str:
    """Return the title, what the numbers are, the table and its footnotes."""
    names = [
        *map(_markdown_escape, table.heads),
        *(_markdown_escape(c.name) + ARROWS[c.direction] for c in table.columns),
    ]
    rule = ["---"] * len(table.heads) + ["---:"] * len(table.columns)
    rows = [line for row in table.rows for line in _markdown_rows(table, row)]
    notes = [f"[{place}] {_markdown_escape(note)}\n" for place, note in enumerate(table.footnotes, 1)]
    lines = map(_markdown_line, [names, rule, *rows])
    return "\n".join([f"## {_markdown_escape(table.title)}", "", _markdown_escape(table.about), "", *lines, "", *notes])


def latex(table: Table) -> str:
    r"""Return a floating table as in the paper: ``\ms`` for deviations, the best bold, highlighted rows grey."""
    heads = [escape(name) for name in table.heads]
    heads += [escape(column.name + ARROWS[column.direction]) for column in table.columns]
    groups = ["\n".join(_latex_rows(table, row) for row in group) for group in table.groups]
    notes = [f"\\par\\footnotesize [{place}] {escape(note)}" for place, note in enumerate(table.footnotes, 1)]
    lines = [
        _NEEDS,
        "\\begin{table}[h]",
        f"\\caption{{{escape(table.caption)}}}",
        f"\\label{{tab:{re.sub('[^A-Za-z0-9]+', '_', table.name)}}}",
        "\\centering",
        "\\small",
        "\\begin{adjustbox}{max width=\\textwidth}",
        f"\\begin{{tabular}}{{{'l' * len(table.heads)}{'c' * len(table.columns)}}}",
        "\\toprule",
        _latex_line(heads),
        "\\midrule",
        "\n\\midrule\n".join(groups),
        "\\bottomrule",
        "\\end{tabular}",
        "\\end{adjustbox}",
        *notes,
        "\\end{table}",
    ]
    return "\n".join(lines) + "\n"


def as_csv(table: Table) -> str:
    """Return one line for every cell, with unrounded numbers and the provenance; missing values are empty."""
    known = table.provenance
    provenance = {**asdict(known), "seeds": " ".join(map(str, known.seeds))} if known else {}
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(spreadsheet_cell, ["table", *table.heads, *_CSV_COLUMNS, *provenance]))
    for row in table.rows:
        for column, cell in zip(table.columns, row.cells, strict=True):
            values = [table.name, *row.heads, *_csv_values(column, cell), *provenance.values()]
            writer.writerow(map(spreadsheet_cell, values))
    return out.getvalue()


def html(table: Table) -> str:
    """Return a figure with the table, its caption and its footnotes; a script can sort it by ``data-value``."""
    return environment().get_template("table.html").render(table=table)


FORMATS: dict[str, Callable[[Table], str]] = {"md": markdown, "csv": as_csv, "tex": latex, "html": html}
"""By the ending of a file."""


def escape(text: str) -> str:
    """Return text in which LaTeX finds no command."""
    return "".join(_SPECIAL.get(sign, sign) for sign in " ".join(text.split()))


def _markdown_rows(table: Table, row: Row) -> list[list[str]]:
    texts = table.texts(row)
    lines = [[*map(_markdown_escape, row.heads), *map(_markdown_ours, texts)]]
    if any(text.paper for text in texts):
        lines.append(["↳ paper", *[""] * (len(row.heads) - 1), *map(_markdown_paper, texts)])
    return lines


def _markdown_ours(text: CellText) -> str:
    value = _markdown_escape(text.text) or with_spread(text.mean, text.spread)
    number = f"(n = {text.n})" if text.n else ""
    footnote = f"[{text.footnote}]" if text.footnote else ""
    parts = (f"**{value}**" if text.best else value, number, _markdown_escape(text.note), text.state, footnote)
    return " ".join(part for part in parts if part)


def _markdown_paper(text: CellText) -> str:
    return with_spread(text.paper, text.paper_spread) + (f" ({text.difference})" if text.difference else "")


def _markdown_line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def without_escapes(markdown: str) -> str:
    """Return Markdown without the backslashes before special characters, for a terminal."""
    return re.sub(rf"\\({_MARKDOWN})", r"\1", markdown)


def _markdown_escape(text: str) -> str:
    return re.sub(rf"({_MARKDOWN})", r"\\\1", " ".join(text.split()))


def _latex_rows(table: Table, row: Row) -> str:
    texts = table.texts(row)
    first = f"\\textbf{{{escape(row.heads[0])}}}" if row.highlight else escape(row.heads[0])
    lines = [_latex_line([first, *map(escape, row.heads[1:]), *map(_latex_ours, texts)])]
    if any(text.paper for text in texts):
        lines.append(_latex_line(["\\quad\\scriptsize paper", *[""] * (len(row.heads) - 1), *map(_latex_paper, texts)]))
    return "\n".join(f"\\rowcolor{{gray!10}}\n{line}" if row.highlight else line for line in lines)


def _latex_ours(text: CellText) -> str:
    bold = "\\textbf{{{}}}" if text.best else "{}"
    mean = escape(text.text) or bold.format(escape(text.mean))
    spread = f"\\ms{{{bold.format(text.spread)}}}" if text.spread else ""
    number = f"{{\\scriptsize ($n={text.n}$)}}" if text.n else ""
    footnote = f"\\textsuperscript{{[{text.footnote}]}}" if text.footnote else ""
    return " ".join(part for part in (mean + spread, number, escape(text.note), text.state + footnote) if part)


def _latex_paper(text: CellText) -> str:
    if not text.paper:
        return ""
    spread = f"\\ms{{{text.paper_spread}}}" if text.paper_spread else ""
    difference = f" ({escape(text.difference)})" if text.difference else ""
    return f"\\scriptsize {escape(text.paper)}{spread}{difference}"


def _latex_line(cells: Sequence[str]) -> str:
    return " & ".join(cells) + " \\\\"


def _csv_values(column: Column, cell: Cell) -> list[object]:
    ours = (cell.ours.mean, cell.ours.spread, cell.ours.n) if cell.ours else (cell.text or None, None, None)
    state = "empty" if cell.state == "done" and ours[0] is None else cell.state
    return [column.name, column.direction, *ours, *(cell.paper or (None, None)), cell.difference, state, cell.reason]
