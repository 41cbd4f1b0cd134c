"""The results of finished runs as a table in the terminal."""

import statistics
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from messi.cli.common.output import Row, print_rows, say
from messi.core.records import EvaluationRecord
from messi.reports.class_scores import CLASS_SCORES
from messi.reports.number_format import percent
from messi.reports.result_tables import ResultRow, result_rows
from messi.reports.runs import read_run

_SETTINGS = ("Selection", "Target part", "Seed", "Recipe", "Protocol")
"""Columns that become one line below the table if all rows agree in them."""
_WIDTH = 100


def print_results(paths: Sequence[Path]) -> None:
    """Print a row for every target of every run, and mean and worst for runs with several targets."""
    results = result_rows([read_run(path) for path in paths])
    unbalanced = _are_unbalanced(results)
    _print_table([{"Run": result.label, **row} for result in results for row in _rows(result, unbalanced=unbalanced)])
    _print_better_steps(results)
    for result in results:
        if len(result.targets) > 1:
            say(f" {result.label}: {_mean_and_worst({t.domain: t.accuracy for t in result.targets})}", "")


def print_held_out(paths: Sequence[Path]) -> None:
    """Print runs that hold out one domain each: a row per domain, then mean and worst."""
    results = result_rows([read_run(path) for path in paths])
    unbalanced = _are_unbalanced(results)
    _print_table([row for result in results for row in _rows(result, unbalanced=unbalanced)])
    _print_better_steps(results)
    say(f" {_mean_and_worst({result.targets[0].domain: result.targets[0].accuracy for result in results})}", "")


def _print_table(rows: Sequence[Row]) -> None:
    same = [name for name in _SETTINGS if len({row[name] for row in rows}) == 1]
    print_rows([{name: value for name, value in row.items() if name not in same} for row in rows])
    if same:
        text = ", ".join(f"{name.lower()} {rows[0][name]}" for name in same if rows[0][name] != "")
        say(*textwrap.wrap(text, _WIDTH, initial_indent=" ", subsequent_indent="   "), "")


def _print_better_steps(results: Sequence[ResultRow]) -> None:
    """Print the runs in which a single step was clearly better than the average, and so became the model."""
    for result in results:
        if result.better_step:
            say(f" {result.label}: {result.better_step.comparison}", "")


def _mean_and_worst(accuracies: Mapping[str, float]) -> str:
    worst = min(accuracies, key=lambda domain: accuracies[domain])
    mean = percent(statistics.fmean(accuracies.values()))
    return f"mean over {len(accuracies)} targets {mean} %, worst {worst} {percent(accuracies[worst])} %"


def _rows(result: ResultRow, *, unbalanced: bool) -> list[Row]:
    """Return a row for every target, or a single row for a run without targets."""
    targets = [_target(record, unbalanced=unbalanced) for record in result.targets]
    part = result.target_part if targets else "none"
    settings = (result.selection, part, result.seed, result.recipe, result.protocol)
    rest: Row = {
        "Validation %": percent(result.validation),
        "Selected step": result.selected,
        **dict(zip(_SETTINGS, settings, strict=True)),
    }
    return [{**target, **rest} for target in targets or [_target(None, unbalanced=unbalanced)]]


def _target(record: EvaluationRecord | None, *, unbalanced: bool) -> Row:
    """Return the scores on a target, with those of unbalanced classes if a row of the table has them."""
    return {
        "Target": record.domain if record else "none",
        "Accuracy %": percent(record.accuracy) if record else "",
        **(_class_scores(record) if unbalanced else {}),
        "n": record.count if record else "",
    }


def _class_scores(record: EvaluationRecord | None) -> Row:
    scores = record and record.class_scores
    return {one.name: percent(getattr(scores, key)) if scores else "" for key, one in CLASS_SCORES.items()}


def _are_unbalanced(results: Sequence[ResultRow]) -> bool:
    return any(record.class_scores for result in results for record in result.targets)
