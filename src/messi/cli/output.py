"""Rows as a table for people, or as CSV or JSON for programs."""

import csv
import json
import sys
from collections.abc import Sequence
from typing import Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

Format = Literal["table", "csv", "json"]
Row = dict[str, str | int | float]


def print_rows(rows: Sequence[Row], form: Format = "table", *, title: str | None = None) -> None:
    """Print rows that all have the same keys."""
    if form == "json":
        json.dump(list(rows), sys.stdout, indent=2)
        sys.stdout.write("\n")
    elif form == "csv":
        writer = csv.DictWriter(sys.stdout, fieldnames=list(rows[0]) if rows else [])
        writer.writeheader()
        writer.writerows(rows)
    else:
        _print_table(rows, title)


def _print_table(rows: Sequence[Row], title: str | None) -> None:
    table = Table(title=title, title_justify="left")
    for key, value in rows[0].items() if rows else ():
        table.add_column(key, justify="left" if isinstance(value, str) else "right", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_show(value)) for value in row.values()))
    Console().print(table)


def _show(value: str | float) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)
