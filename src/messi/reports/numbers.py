"""The single numbers of ``diagnostics.json``, side by side."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from messi.core.records import Role
from messi.core.run_documents import Diagnostics
from messi.reports.number_format import significant
from messi.reports.runs import FinishedRun
from messi.reports.sample_size import Seen, examples_seen, seen_in_words
from messi.reports.tables import percent


@dataclass(frozen=True)
class Measure:
    """A number that a run may have."""

    name: str
    path: tuple[str, ...]
    show: Callable[[float], str]
    meaning: str
    """With the names of ``_facts`` in braces."""
    note: tuple[str, ...] = ()
    """Where the document has a name to say beside the number."""
    role: Role = "source_val"
    """Of the examples that it saw."""
    seen: tuple[str, ...] = ()
    """Where the document says how many; nothing for what is of all examples."""


@dataclass(frozen=True)
class Numbers:
    """A column for every measure that some run has, a row for every run that has some."""

    meanings: dict[str, str]
    """By the name of the measure, which is the head of its column."""
    rows: dict[int, tuple[str, ...]]
    """By the place of the run on the page; empty texts where it lacks a measure."""


MEASURES = (
    Measure(
        "Worst domain %",
        ("accuracy", "worst", "accuracy"),
        percent,
        "The lowest accuracy on a domain, be it the validation part of a source or the target; of all examples.",
        note=("accuracy", "worst", "domain"),
    ),
    Measure(
        "ECE, sources %",
        ("calibration", "source_val", "ece"),
        percent,
        "Expected calibration error: the mean distance between how sure a model is and how often it is right, on the "
        "validation data of the sources.",
        seen=("calibration", "source_val", "bins"),
    ),
    Measure(
        "ECE, target %",
        ("calibration", "target", "ece"),
        percent,
        "The same on the target.",
        role="target",
        seen=("calibration", "target", "bins"),
    ),
    Measure(
        "Energy distance",
        ("discrepancy", "energy"),
        significant,
        "Between two source domains within a class, of what the classifier reads; the mean over pairs and classes. "
        "Lower is more alike, but its scale is that of the features.",
        seen=("discrepancy", "examples"),
    ),
    Measure(
        "Domain probe %",
        ("probe", "accuracy"),
        percent,
        "How often a simple classifier tells the domain, within a class, from what the classifier reads. Near chance, "
        "the domain cannot be told.",
        seen=("probe", "examples"),
    ),
    Measure("Chance %", ("probe", "chance"), percent, "What such a probe reaches by guessing."),
    Measure(
        "Routing entropy",
        ("routing", "entropy"),
        significant,
        "Of the expert weights of one input, in nats, the mean over inputs. Near 0, one expert decides; the largest "
        "possible is {largest}, where all have the same weight.",
        seen=("examples",),
    ),
    Measure(
        "Load deviation",
        ("routing", "load_std"),
        significant,
        "Standard deviation of the experts' shares of all inputs. Near 0, all are used alike.",
        seen=("examples",),
    ),
    Measure(
        "Dead experts %",
        ("routing", "dead_rate"),
        percent,
        "Experts whose share of the weights of all inputs is below {dead}.",
        seen=("examples",),
    ),
    Measure(
        "Template divergence",
        ("routing", "template_divergence"),
        significant,
        "Jensen-Shannon divergence, in nats, between the ways in which domains route the same classes. Near 0, they "
        "agree; it is at most log 2 = 0.69.",
        seen=("examples",),
    ),
    Measure(
        "Expert cosine",
        ("similarity", "mean_off_diagonal"),
        significant,
        "Mean cosine between the outputs of two experts. Near 0, they say different things.",
        seen=("examples",),
    ),
    Measure(
        "Effective rank",
        ("similarity", "effective_rank"),
        significant,
        "How many directions the experts' outputs span.",
        seen=("examples",),
    ),
)


def numbers(runs: Sequence[FinishedRun]) -> Numbers:
    """Return the numbers of all runs that have some."""
    values = {place: [_cell(run.diagnostics, m) for m in MEASURES] for place, run in enumerate(runs)}
    kept = [i for i in range(len(MEASURES)) if any(row[i] for row in values.values())]
    rows = {place: tuple(row[i] for i in kept) for place, row in values.items() if any(row)}
    return Numbers({MEASURES[i].name: _meaning(MEASURES[i], runs) for i in kept}, rows)


def _cell(document: Diagnostics, measure: Measure) -> str:
    value = _found(document, measure.path)
    if not isinstance(value, int | float) or not math.isfinite(value):
        return ""
    note = _found(document, measure.note) if measure.note else None
    return measure.show(value) + (f" ({note})" if note else "")


def _meaning(measure: Measure, runs: Sequence[FinishedRun]) -> str:
    several = [seen for run in runs if (seen := _seen(run, measure))]
    return measure.meaning.format(**_facts(runs)) + (f" Measured on {seen_in_words(several)}." if several else "")


def _seen(run: FinishedRun, measure: Measure) -> Seen | None:
    found = _found(run.diagnostics, measure.seen) if measure.seen and _cell(run.diagnostics, measure) else None
    number = sum(one["count"] for one in found) if isinstance(found, list) else found
    return examples_seen(run, measure.role, number) if number else None


def _facts(runs: Sequence[FinishedRun]) -> dict[str, str]:
    """Return what meanings depend on, of the runs that have a router."""
    routed = [run.diagnostics for run in runs if "routing" in run.diagnostics]
    experts = sorted({document["experts"] for document in routed})
    thresholds = sorted({document["routing"]["dead_threshold"] for document in routed})
    return {
        "largest": " or ".join(f"log {number} = {math.log(number):.2f}" for number in experts),
        "dead": " or ".join(f"{100 * threshold:g} %" for threshold in thresholds),
    }


def _found(document: Diagnostics, path: Sequence[str]) -> Any:
    found: Any = document
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found
