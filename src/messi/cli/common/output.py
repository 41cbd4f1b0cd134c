"""Everything that commands write: lines, and rows as a table for people or as CSV or JSON for programs.

Standard output and standard error may be closed or full, and a terminal obeys control characters in what it shows: both
are handled here, and no other module writes.
"""

import contextlib
import csv
import errno
import io
import json
import logging
import math
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NoReturn, TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from messi.core.text import printable, spreadsheet_cell

Format = Literal["table", "csv", "json"]
Row = dict[str, str | int | float]
_WRITE_ERRORS = {getattr(errno, name) for name in ("ENOSPC", "EDQUOT", "EFBIG", "EIO", "EPIPE") if hasattr(errno, name)}
_STYLE = re.compile(r"\x1b\[[\d;]*m")


class Terminal(Console):
    """A console that lets the command decide what a closed pipe means."""

    def on_broken_pipe(self) -> NoReturn:
        """Raise the error again; rich would exit with its own code."""
        raise  # noqa: PLE0704 (rich calls this where it has caught the error)


def say(*lines: str) -> None:
    """Write lines to standard output; a line break inside a name does not start a new line."""
    sys.stdout.writelines(f"{printable(line)}\n" for line in lines)
    sys.stdout.flush()


def note(text: str, *, style: str = "") -> None:
    """Write one line to standard error; if that fails, the work continues."""
    console = Terminal(stderr=True, soft_wrap=True, highlight=False)
    with contextlib.suppress(OSError):
        console.print(Text(printable(text), style=style))


class NoteHandler(logging.Handler):
    """Writes Python's log to standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        note(record.getMessage())


def print_rows(rows: Iterable[Row], form: Format = "table") -> None:
    """Print rows that all have the same keys."""
    if form == "json":
        text = json.dumps([{key: _json_value(value) for key, value in row.items()} for row in rows], indent=2)
        say(*text.replace("\x7f", "\\u007f").split("\n"))  # the only control character that json.dumps does not escape
    elif form == "csv":
        write_csv(sys.stdout, rows)
    else:
        _print_table(list(rows))


def write_csv(file: TextIO, rows: Iterable[Row], delimiter: str = ",") -> None:
    """Write rows that all have the same keys, one after the other."""
    writer = csv.writer(file, delimiter=delimiter)
    for number, row in enumerate(rows):
        if not number:
            writer.writerow(_csv_row(row))
        writer.writerow(_csv_row(row.values()))


def _json_value(value: str | float) -> str | float | None:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _csv_row(values: Iterable[str | float]) -> list[object]:
    return [spreadsheet_cell(printable(value) if isinstance(value, str) else value) for value in values]


def _print_table(rows: Sequence[Row]) -> None:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for key, value in rows[0].items() if rows else ():
        longest = max(*(len(_show(row[key])) for row in rows), *(len(word) for word in _show(key).split()))
        justify: JustifyMethod = "left" if isinstance(value, str) else "right"
        # Only headers and long texts wrap; a wrapped number is hard to read.
        table.add_column(Text(_show(key)), justify=justify, overflow="fold", min_width=min(longest, 24))
    for row in rows:
        table.add_row(*(Text(_show(value)) for value in row.values()))
    console = Terminal()
    if not console.is_terminal:
        console.width = 500  # do not wrap in files and pipes
    console.print(table)


def _show(value: str | float) -> str:
    return f"{value:.3f}" if isinstance(value, float) else printable(str(value))


def prepare_output() -> None:
    """Accept names that are not valid text, and replace closed outputs by ones that discard everything."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: PTH123, SIM115 (open as long as the process lives)
        if isinstance(output := getattr(sys, name), io.TextIOWrapper):
            output.reconfigure(errors="backslashreplace")


@contextlib.contextmanager
def escaped_errors(arguments: Sequence[str]) -> Iterator[None]:
    """Escape control characters of arguments that the option parser quotes in its errors."""
    odd = any(printable(argument) != argument for argument in arguments)
    with contextlib.redirect_stderr(_Escaped(sys.stderr)) if odd else contextlib.nullcontext():
        yield


class _Escaped(io.TextIOBase):
    """Writes text without colours and with visible control characters."""

    def __init__(self, output: TextIO) -> None:
        self._output = output

    def write(self, text: str) -> int:
        lines = _STYLE.sub("", text).split("\n")
        self._output.write("\n".join(map(printable, lines)))
        return len(text)

    def flush(self) -> None:
        self._output.flush()


def is_output_error(error: OSError) -> bool:
    """Return whether standard output or standard error raised an error: only theirs name no file."""
    return error.filename is None and error.errno in _WRITE_ERRORS


def discard_unwritten() -> None:
    """Discard what could not be written; Python would try again on exit and print an error."""
    for output in (sys.stdout, sys.stderr):
        try:
            output.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), output.fileno())
