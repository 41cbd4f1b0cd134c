"""The result of finished runs as a table in the terminal."""

import statistics
from collections.abc import Sequence
from pathlib import Path

from messi.cli.output import Row, print_rows
from messi.reports.runs import read_run
from messi.reports.tables import ResultRow, percent, result_rows, result_table


def print_results(paths: Sequence[Path]) -> None:
    """Print one row per run."""
    table = result_table(result_rows([read_run(path) for path in paths]))
    rows: list[Row] = [dict(zip(table.header, row, strict=True)) for row in table.rows]
    print_rows(rows)


def print_held_out(paths: Sequence[Path]) -> None:
    """Print runs that hold out one domain each, a row for every domain, and their mean and worst."""
    results = result_rows([read_run(path) for path in paths])
    print_rows([_row(result) for result in results])
    accuracies = {result.targets[0].domain: result.targets[0].accuracy for result in results}
    worst = min(accuracies, key=lambda domain: accuracies[domain])
    mean = percent(statistics.fmean(accuracies.values()))
    print(f" mean over {len(results)} targets {mean} %, worst {worst} {percent(accuracies[worst])} %\n")  # noqa: T201


def _row(result: ResultRow) -> Row:
    target = result.targets[0]
    return {
        "Target": target.domain,
        "Accuracy %": percent(target.accuracy),
        "n": target.count,
        "Validation %": percent(result.validation),
        "Selected step": f"{result.selected_steps} of {result.steps}",
        "Selection": result.selection,
        "Target part": result.target_part,
        "Protocol": result.protocol,
        "Seed": result.seed,
    }
