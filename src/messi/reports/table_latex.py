r"""Tables in LaTeX, laid out as in the paper: ``\ms`` for deviations, the best bold, the paper's method grey."""

import re
from collections.abc import Sequence

from messi.reports.cell_text import CellText, cell_text
from messi.reports.paper_tables import ARROWS, Row, Table

_NEEDS = (
    "% Needs \\usepackage{booktabs,amsmath,adjustbox} and \\usepackage[table]{xcolor}.\n"
    "\\providecommand{\\ms}[1]{\\ensuremath{\\pm #1}}"
)
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


def latex(table: Table) -> str:
    """Return a floating table, its caption and notes included."""
    heads = [escape(name) for name in table.heads]
    heads += [escape(column.name + ARROWS[column.direction]) for column in table.columns]
    groups = ["\n".join(_rows(table, row) for row in group) for group in table.groups]
    notes = [f"\\par\\footnotesize [{place}] {escape(note)}" for place, note in enumerate(table.notes, 1)]
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
        _line(heads),
        "\\midrule",
        "\n\\midrule\n".join(groups),
        "\\bottomrule",
        "\\end{tabular}",
        "\\end{adjustbox}",
        *notes,
        "\\end{table}",
    ]
    return "\n".join(lines) + "\n"


def escape(text: str) -> str:
    """Return text in which LaTeX sees no command."""
    return "".join(_SPECIAL.get(sign, sign) for sign in " ".join(text.split()))


def _rows(table: Table, row: Row) -> str:
    texts = [cell_text(table, cell, place) for place, cell in enumerate(row.cells)]
    first = f"\\textbf{{{escape(row.heads[0])}}}" if row.ours else escape(row.heads[0])
    lines = [_line([first, *map(escape, row.heads[1:]), *map(_ours, texts)])]
    if any(text.paper for text in texts):
        lines.append(_line(["\\quad\\scriptsize paper", *[""] * (len(row.heads) - 1), *map(_paper, texts)]))
    return "\n".join(f"\\rowcolor{{gray!10}}\n{line}" if row.ours else line for line in lines)


def _ours(text: CellText) -> str:
    bold = "\\textbf{{{}}}" if text.best else "{}"
    mean = bold.format(escape(text.mean))
    spread = f"\\ms{{{bold.format(text.spread)}}}" if text.spread else ""
    number = f"{{\\scriptsize ($n={text.n}$)}}" if text.n else ""
    note = f"\\textsuperscript{{[{text.note}]}}" if text.note else ""
    return " ".join(part for part in (mean + spread, number, text.state + note) if part)


def _paper(text: CellText) -> str:
    if not text.paper:
        return ""
    spread = f"\\ms{{{text.paper_spread}}}" if text.paper_spread else ""
    difference = f" ({escape(text.difference)})" if text.difference else ""
    return f"\\scriptsize {escape(text.paper)}{spread}{difference}"


def _line(cells: Sequence[str]) -> str:
    return " & ".join(cells) + " \\\\"
