"""The result of finished runs as a table in the terminal."""

from collections.abc import Sequence
from pathlib import Path

from messi.cli.output import Row, print_rows
from messi.reports.runs import read_run
from messi.reports.tables import result_rows, result_table


def print_results(paths: Sequence[Path]) -> None:
    """Print one row per run."""
    table = result_table(result_rows([read_run(path) for path in paths]))
    rows: list[Row] = [dict(zip(table.header, row, strict=True)) for row in table.rows]
    print_rows(rows)
