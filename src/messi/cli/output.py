"""All that commands write: lines, and rows as a table for people, or as CSV or JSON for programs."""

import contextlib
import csv
import json
import logging
import math
import sys
from collections.abc import Iterable, Sequence
from typing import Literal, NoReturn

from rich.box import SIMPLE_HEAD
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from messi.core.text import printable, spreadsheet_cell

Format = Literal["table", "csv", "json"]
Row = dict[str, str | int | float]


class Terminal(Console):
    """A console that leaves it to the command what happens when nobody reads any more."""

    def on_broken_pipe(self) -> NoReturn:
        """Raise the error again, which rich would turn into an exit code of its own."""
        raise  # noqa: PLE0704 (rich calls this where it has caught the error)


def say(*lines: str) -> None:
    """Write lines to the standard output; a name with a line break in it makes no line of its own."""
    sys.stdout.writelines(f"{printable(line)}\n" for line in lines)
    sys.stdout.flush()


def note(text: str, *, style: str = "") -> None:
    """Write one line to the error output; where that takes nothing, the work is more important."""
    console = Terminal(stderr=True, soft_wrap=True, highlight=False)
    with contextlib.suppress(OSError):
        console.print(Text(printable(text), style=style))


class NoteHandler(logging.Handler):
    """Writes what Python's log is told to the error output."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        note(record.getMessage())


def print_rows(rows: Sequence[Row], form: Format = "table") -> None:
    """Print rows that all have the same keys."""
    if form == "json":
        text = json.dumps([{key: _json_value(value) for key, value in row.items()} for row in rows], indent=2)
        say(*text.replace("\x7f", "\\u007f").split("\n"))  # the one control character that JSON lets pass
    elif form == "csv":
        writer = csv.writer(sys.stdout)
        writer.writerows([_csv_row(rows[0])] if rows else [])
        writer.writerows(_csv_row(row.values()) for row in rows)
    else:
        _print_table(rows)


def _json_value(value: str | float) -> str | float | None:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _csv_row(values: Iterable[str | float]) -> list[object]:
    return [spreadsheet_cell(printable(value) if isinstance(value, str) else value) for value in values]


def _print_table(rows: Sequence[Row]) -> None:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for key, value in rows[0].items() if rows else ():
        longest = max(*(len(_show(row[key])) for row in rows), *(len(word) for word in _show(key).split()))
        justify: JustifyMethod = "left" if isinstance(value, str) else "right"
        # Only headers and long texts wrap: a number that is broken in two is hard to read.
        table.add_column(Text(_show(key)), justify=justify, overflow="fold", min_width=min(longest, 24))
    for row in rows:
        table.add_row(*(Text(_show(value)) for value in row.values()))
    console = Terminal()
    if not console.is_terminal:
        console.width = 500  # a file or a pipe has no edge to wrap at
    console.print(table)


def _show(value: str | float) -> str:
    return f"{value:.3f}" if isinstance(value, float) else printable(str(value))
