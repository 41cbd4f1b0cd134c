"""The list of measures: what each is called, where a run stores it, which values are better, and how it is shown.

Report pages, the tables of experiments and charts all refer to this list.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from messi.core.records import Role
from messi.core.run_documents import Diagnostics
from messi.evaluation.selection import Metric
from messi.reports.runs import FinishedRun
from messi.reports.statistics import Summary
from messi.reports.table import Cell, Column, Direction, Row, Table


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A number in ``diagnostics.json``."""

    name: str
    """The head of its column on a page."""
    path: tuple[str, ...]
    """Its keys in the document."""
    meaning: str
    """One or two sentences, with the names of ``_facts`` in braces."""
    better: Direction = "none"
    percent: bool = False
    """Whether it is a share, to be shown in percent."""
    short: str = ""
    """The head of its column in the tables of experiments."""
    short_unit: float | None = None
    """Its unit there; by default that of a page."""
    digits: int = 1
    """Its decimals there."""
    domain: tuple[str, ...] = ()
    """The keys of the domain that it belongs to, shown after the number."""
    role: Role = "source_val"
    """Of the examples it is computed from."""
    examples: tuple[str, ...] = ()
    """The keys of their number; empty if it is computed from all examples."""

    @property
    def unit(self) -> float:
        """One unit of the value on a page, as a stored value."""
        return 0.01 if self.percent else 1.0

    def value(self, document: Diagnostics) -> float | None:
        """Return the stored number; None if it is missing or not finite."""
        found = _lookup(document, self.path)
        return float(found) if isinstance(found, int | float) and math.isfinite(found) else None


MEASURES = {
    "worst_domain": Measure(
        name="Worst domain %",
        path=("accuracy", "worst", "accuracy"),
        meaning="The lowest accuracy on any domain, target or validation part of a source domain, over all examples.",
        better="up",
        percent=True,
        domain=("accuracy", "worst", "domain"),
    ),
    "source_ece": Measure(
        name="ECE, sources %",
        path=("calibration", "source_val", "ece"),
        meaning=(
            "Expected calibration error on the validation data of the source domains: the mean difference between the "
            "model's confidence and its accuracy."
        ),
        better="down",
        percent=True,
        short="ECE val. %",
        examples=("calibration", "source_val", "bins"),
    ),
    "target_ece": Measure(
        name="ECE, target %",
        path=("calibration", "target", "ece"),
        meaning="Expected calibration error on the target.",
        better="down",
        percent=True,
        short="ECE target %",
        role="target",
        examples=("calibration", "target", "bins"),
    ),
    "energy_distance": Measure(
        name="Energy distance",
        path=("discrepancy", "energy"),
        meaning=(
            "Energy distance between two source domains within a class, computed from the classifier's inputs; mean "
            "over pairs and classes. Lower means more alike, but the scale depends on the features."
        ),
        short="Energy",
        digits=2,
        examples=("discrepancy", "examples"),
    ),
    "domain_probe": Measure(
        name="Domain probe %",
        path=("probe", "accuracy"),
        meaning=(
            "Accuracy of a linear classifier that predicts the domain, within a class, from the classifier's inputs. "
            "Near chance, the features do not reveal the domain."
        ),
        percent=True,
        short="Domain probe %",
        examples=("probe", "examples"),
    ),
    "probe_chance": Measure(
        name="Chance %",
        path=("probe", "chance"),
        meaning="The accuracy of such a probe by guessing.",
        percent=True,
        short="Chance %",
    ),
    "routing_entropy": Measure(
        name="Routing entropy",
        path=("routing", "entropy"),
        meaning=(
            "Entropy of the expert weights of an input, in nats; mean over inputs. 0 means that one expert decides; "
            "the maximum, with equal weights, is {largest}."
        ),
        short="Routing ent.",
        digits=3,
        examples=("examples",),
    ),
    "load_deviation": Measure(
        name="Load deviation",
        path=("routing", "load_std"),
        meaning="Standard deviation of the experts' shares of all inputs. 0 means that all experts are used equally.",
        short="Load std.",
        digits=3,
        examples=("examples",),
    ),
    "dead_experts": Measure(
        name="Dead experts %",
        path=("routing", "dead_rate"),
        meaning="Experts that receive less than {dead} of the total weight.",
        percent=True,
        short="Dead %",
        examples=("examples",),
    ),
    "template_divergence": Measure(
        name="Template divergence",
        path=("routing", "template_divergence"),
        meaning=(
            "Jensen-Shannon divergence, in nats, between the ways in which domains route the same classes. 0 means "
            "that they agree; the maximum is log 2 = 0.69."
        ),
        short="Routing JS (1e-4)",
        short_unit=1e-4,
        examples=("examples",),
    ),
    "expert_cosine": Measure(
        name="Expert cosine",
        path=("similarity", "mean_off_diagonal"),
        meaning="Mean cosine between the outputs of two experts. 0 means that their outputs are unrelated.",
        short="Expert cos.",
        digits=3,
        examples=("examples",),
    ),
    "effective_rank": Measure(
        name="Effective rank",
        path=("similarity", "effective_rank"),
        meaning="The number of directions that the experts' outputs span.",
        examples=("examples",),
    ),
}


@dataclass(frozen=True)
class Score:
    """A metric by which a step can be selected."""

    name: str
    meaning: str
    """What one value of it is."""


SCORES: dict[Metric, Score] = {
    "accuracy": Score("Mean accuracy", "the mean over the validation domains"),
    "macro_f1": Score(
        "Macro F1", "the mean over classes of the F1 score, on the examples of all validation domains together"
    ),
}


@dataclass(frozen=True)
class SampleSize:
    """How many examples of a run a measure is computed from; very large domains are subsampled."""

    number: int
    of: int
    """All examples; at least ``number``, even if the records do not state it."""


def sample_size(run: FinishedRun, role: Role, number: int) -> SampleSize:
    """Compare a number of examples with all that the run has in a role."""
    return SampleSize(number, max(number, sum(record.count for record in run.selected(role))))


def sample_size_text(sizes: Sequence[SampleSize]) -> str:
    """Return ``n = 7`` or ``n = 7 of 12``, with ranges if runs differ."""
    numbers, totals = _range([one.number for one in sizes]), _range([one.of for one in sizes])
    return f"n = {numbers}" if numbers == totals else f"n = {numbers} of {totals}"


def measures_table(runs: Sequence[FinishedRun], labels: Sequence[str]) -> Table | None:
    """Return a column for every measure that some run has, and a row for every run that has some."""
    kept = [m for m in MEASURES.values() if any(m.value(run.diagnostics) is not None for run in runs)]
    rows = [
        Row((labels[place],), tuple(_cell(run.diagnostics, measure) for measure in kept), look=place)
        for place, run in enumerate(runs)
        if any(measure.value(run.diagnostics) is not None for measure in kept)
    ]
    if not rows:
        return None
    columns = (Column(m.name, m.better, 1 if m.percent else None, _meaning(m, runs)) for m in kept)
    return Table(name="diagnostics", heads=("Run",), columns=tuple(columns), groups=(tuple(rows),))


def _cell(document: Diagnostics, measure: Measure) -> Cell:
    value = measure.value(document)
    if value is None:
        return Cell()
    domain = _lookup(document, measure.domain) if measure.domain else None
    return Cell(Summary(value / measure.unit, None, 1), note=f"({domain})" if domain else "")


def _meaning(measure: Measure, runs: Sequence[FinishedRun]) -> str:
    sizes = [size for run in runs if (size := _sample_size(run, measure))]
    return measure.meaning.format(**_facts(runs)) + (f" Measured on {sample_size_text(sizes)}." if sizes else "")


def _sample_size(run: FinishedRun, measure: Measure) -> SampleSize | None:
    known = measure.examples and measure.value(run.diagnostics) is not None
    found = _lookup(run.diagnostics, measure.examples) if known else None
    number = sum(one["count"] for one in found) if isinstance(found, list) else found
    return sample_size(run, measure.role, number) if number else None


def _facts(runs: Sequence[FinishedRun]) -> dict[str, str]:
    """Return what meanings depend on, from the runs that have a router."""
    routed = [run.diagnostics for run in runs if "routing" in run.diagnostics]
    experts = sorted({document["experts"] for document in routed})
    thresholds = sorted({document["routing"]["dead_threshold"] for document in routed})
    return {
        "largest": " or ".join(f"log {number} = {math.log(number):.2f}" for number in experts),
        "dead": " or ".join(f"{100 * threshold:g} %" for threshold in thresholds),
    }


def _lookup(document: Diagnostics, path: Sequence[str]) -> Any:
    found: Any = document
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def _range(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return f"{low}" if low == high else f"{low} to {high}"
