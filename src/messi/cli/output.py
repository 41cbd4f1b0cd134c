"""Rows as a table for people, or as CSV or JSON for programs."""

import csv
import json
import sys
from collections.abc import Sequence
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

Format = Literal["table", "csv", "json"]
Row = dict[str, str | int | float]


def print_rows(rows: Sequence[Row], form: Format = "table") -> None:
    """Print rows that all have the same keys."""
    if form == "json":
        json.dump(list(rows), sys.stdout, indent=2)
        sys.stdout.write("\n")
    elif form == "csv":
        writer = csv.DictWriter(sys.stdout, fieldnames=list(rows[0]) if rows else [])
        writer.writeheader()
        writer.writerows(rows)
    else:
        _print_table(rows)


def _print_table(rows: Sequence[Row]) -> None:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for key, value in rows[0].items() if rows else ():
        longest = max(*(len(_show(row[key])) for row in rows), *(len(word) for word in key.split()))
        justify: JustifyMethod = "left" if isinstance(value, str) else "right"
        # Only headers and long texts wrap: a number that is broken in two is hard to read.
        table.add_column(Text(key), justify=justify, overflow="fold", min_width=min(longest, 24))
    for row in rows:
        table.add_row(*(Text(_show(value)) for value in row.values()))
    console = Console()
    if not console.is_terminal:
        console.width = 500  # a file or a pipe has no edge to wrap at
    console.print(table)


def _show(value: str | float) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)
