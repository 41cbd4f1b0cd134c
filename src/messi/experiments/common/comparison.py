"""Two arms of an experiment that differ in one thing, and the cells of a table that show their mean difference."""

import dataclasses
import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from messi.reports.statistics import Summary
from messi.reports.table import Cell
from messi.studies.common.results import Results, Value
from messi.sweeps.plan import Label


class Comparison(NamedTuple):
    """What the difference between two arms shows."""

    effect: str
    arm: str
    baseline: str


def paired_differences(results: Results, one: Comparison, value: Value, **labels: Label) -> Sequence[float]:
    """Return the difference of every block and seed that both arms have finished, among the runs with some labels."""
    ours, theirs = (results.scores("target", value, method=arm, **labels) for arm in (one.arm, one.baseline))
    return [ours[key] - theirs[key] for key in sorted(ours.keys() & theirs.keys())]


def paired_cells(results: Results, one: Comparison, value: Value, **labels: Label) -> tuple[Cell, ...]:
    """Return the cells of :func:`mean_cells`, with the state of the runs of the arm."""
    state = results.state(method=one.arm, **labels)
    cells = mean_cells(paired_differences(results, one, value, **labels))
    return tuple(dataclasses.replace(state, ours=cell.ours) for cell in cells)


def mean_cells(values: Sequence[float]) -> tuple[Cell, ...]:
    """Return the mean, its standard error and the number of values; a cell is empty if there are too few."""
    n = len(values)
    mean = statistics.fmean(values) if values else None
    error = statistics.stdev(values) / math.sqrt(n) if n > 1 else None
    return tuple(Cell(None if shown is None else Summary(shown, None, n)) for shown in (mean, error, n))
