"""The single numbers of ``diagnostics.json``, side by side."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from messi.reports.runs import FinishedRun
from messi.reports.tables import percent


@dataclass(frozen=True)
class Measure:
    """A number that a run may have."""

    name: str
    path: tuple[str, ...]
    show: Callable[[float], str]
    meaning: str


@dataclass(frozen=True)
class Numbers:
    """A column for every measure that some run has, a row for every run that has some."""

    measures: tuple[Measure, ...]
    rows: dict[int, tuple[str, ...]]
    """By the place of the run on the page; empty texts where it lacks a measure."""


def _three(value: float) -> str:
    return f"{value:.3g}"


MEASURES = (
    Measure(
        "ECE, sources %",
        ("calibration", "source_val", "ece"),
        percent,
        "Expected calibration error: the mean distance between how sure a model is and how often it is right, on the "
        "validation data of the sources.",
    ),
    Measure("ECE, target %", ("calibration", "target", "ece"), percent, "The same on the target."),
    Measure(
        "Energy distance",
        ("discrepancy", "energy"),
        _three,
        "Between two source domains within a class, of what the classifier reads; the mean over pairs and classes. "
        "Lower is more alike, but its scale is that of the features.",
    ),
    Measure(
        "Domain probe %",
        ("probe", "accuracy"),
        percent,
        "How often a simple classifier tells the domain, within a class, from what the classifier reads. Near chance, "
        "the domain cannot be told.",
    ),
    Measure("Chance %", ("probe", "chance"), percent, "What such a probe reaches by guessing."),
    Measure(
        "Routing entropy",
        ("routing", "entropy"),
        _three,
        "Of the expert weights of one input, the mean over inputs. Near 0, one expert decides.",
    ),
    Measure(
        "Load deviation",
        ("routing", "load_std"),
        _three,
        "Standard deviation of the experts' shares of all inputs. Near 0, all are used alike.",
    ),
    Measure(
        "Dead experts %", ("routing", "dead_rate"), percent, "Experts whose share of all inputs is next to nothing."
    ),
    Measure(
        "Template divergence",
        ("routing", "template_divergence"),
        _three,
        "Jensen-Shannon divergence between the ways in which domains route the same classes. Near 0, they agree.",
    ),
    Measure(
        "Expert cosine",
        ("similarity", "mean_off_diagonal"),
        _three,
        "Mean cosine between the outputs of two experts. Near 0, they say different things.",
    ),
    Measure(
        "Effective rank", ("similarity", "effective_rank"), _three, "How many directions the experts' outputs span."
    ),
)


def numbers(runs: Sequence[FinishedRun]) -> Numbers:
    """Return the numbers of all runs that have some."""
    values = {place: [_value(run.diagnostics, m.path) for m in MEASURES] for place, run in enumerate(runs)}
    kept = [i for i in range(len(MEASURES)) if any(row[i] is not None for row in values.values())]
    rows = {
        place: tuple("" if (value := row[i]) is None else MEASURES[i].show(value) for i in kept)
        for place, row in values.items()
        if any(row[i] is not None for i in kept)
    }
    return Numbers(tuple(MEASURES[i] for i in kept), rows)


def _value(document: dict[str, Any], path: Sequence[str]) -> float | None:
    found: Any = document
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return float(found) if isinstance(found, int | float) and math.isfinite(found) else None
