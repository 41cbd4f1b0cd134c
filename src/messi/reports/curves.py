"""Which charts runs give: validation and loss against step, accuracy against the number of source domains."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from messi.core.records import EvaluationRecord, TrainRecord
from messi.evaluation.selection import RULES, Metric, Reader
from messi.reports.charts import Chart, Series, draw
from messi.reports.methods import GROWTH, group_by_method
from messi.reports.number_format import significant
from messi.reports.runs import FinishedRun, run_labels
from messi.reports.statistics import summarise
from messi.reports.tables import ResultRow

MOST_POINTS = 100
"""Points of a loss curve; more are not seen, but make the page large."""


class _Words(NamedTuple):
    """Of a metric: the title of its chart, and what a point is."""

    title: str
    point: str


_METRICS: dict[Metric, _Words] = {
    "accuracy": _Words("Mean accuracy on the validation data, %", "the mean over the validation domains"),
    "macro_f1": _Words(
        "Macro F1 on the validation data, %",
        "the mean over classes of the F1 on the examples of all validation domains together",
    ),
}


@dataclass(frozen=True)
class ValidationChart:
    """What the steps of some runs were selected by."""

    chart: Chart
    caption: str
    selected: dict[int, float]
    """What the selected weights of each of them have, in percent, by the place of the run on the page."""


def validation_charts(runs: Sequence[FinishedRun], rows: Sequence[ResultRow]) -> list[ValidationChart]:
    """Draw what the selection rule of every run reads against step, the selected step marked, one chart per metric."""
    series: dict[Metric, list[Series]] = {}
    for place, (run, row) in enumerate(zip(runs, rows, strict=True)):
        # Where weights were averaged, no rule selected a step.
        rule = RULES.get(run.selection, RULES[run.validation])
        shares = rule.scores(Reader(run.records, rule.role, rule.name))
        values = {step: 100 * share for step, share in shares.items()}
        series.setdefault(rule.metric, []).append(Series(place, row.label, values, run.marked_step))
    return [
        ValidationChart(
            chart=draw(_METRICS[metric].title, found, _percent, last=_last_step(runs)),
            caption=_validation_caption(metric, [rows[one.place] for one in found]),
            selected={o.place: o.values.get(o.selected, 100 * rows[o.place].validation) for o in found},
        )
        for metric, found in series.items()
    ]


def domain_charts(runs: Sequence[FinishedRun]) -> list[Chart]:
    """Draw the validation accuracy of every domain against step, one chart per domain."""
    labels = run_labels(runs)
    values: dict[str, dict[int, dict[int, float]]] = {}
    for place, run in enumerate(runs):
        for record in run.of_kind(EvaluationRecord):
            if record.role == run.validation and not record.averaged:
                values.setdefault(record.domain, {}).setdefault(place, {})[record.step] = 100 * record.accuracy
    charts = []
    for domain, by_run in values.items():
        series = [Series(place, labels[place], found, runs[place].marked_step) for place, found in by_run.items()]
        charts.append(draw(domain, series, _percent, last=_last_step(runs)))
    return charts


def loss_charts(runs: Sequence[FinishedRun]) -> list[Chart]:
    """Draw the weighted loss terms against step, one chart per term, after their sum where there are several."""
    trains = [thinned(run.of_kind(TrainRecord)) for run in runs]
    names = list(dict.fromkeys(name for train in trains for record in train for name in record.terms))
    labels = run_labels(runs)
    charts = []
    for name in [None, *names] if len(names) > 1 else names:
        series = [
            Series(place, label, values)
            for place, (train, label) in enumerate(zip(trains, labels, strict=True))
            if (values := _term(train, name))
        ]
        charts.append(draw(name or "loss (sum of the terms)", series, significant, last=_last_step(runs)))
    return charts


def growth_chart(runs: Sequence[FinishedRun]) -> Chart | None:
    """Draw target accuracy against the number of source domains, where that is what runs on one target differ in."""
    if len({(run.data, run.targets) for run in runs}) > 1 or not all(run.targets for run in runs):
        return None
    groups = group_by_method(runs, besides=GROWTH)
    series = [_growth(place, label, members) for place, (label, members) in enumerate(groups.items())]
    if not any(len(one.values) > 1 for one in series):
        return None
    last = max(len(run.sources) for run in runs)
    return draw("Accuracy on the target, %", series, _percent, last=last, unit="{} source domains")


def thinned(records: Sequence[TrainRecord]) -> list[TrainRecord]:
    """Join neighbours until there are few enough; each stays the mean over the steps since the one before."""
    size = math.ceil(len(records) / MOST_POINTS)
    if size <= 1:
        return list(records)
    starts = [0, *(record.step for record in records[:-1])]
    joined = []
    for first in range(0, len(records), size):
        group = records[first : first + size]
        weights = [record.step - start for record, start in zip(group, starts[first:], strict=False)]
        names = dict.fromkeys(name for record in group for name in record.terms)
        joined.append(TrainRecord(step=group[-1].step, terms={n: _weighted(group, weights, n) for n in names}))
    return joined


def _validation_caption(metric: Metric, rows: Sequence[ResultRow]) -> str:
    counts = ", ".join(dict.fromkeys(str(row.validation_count) for row in rows))
    rules = ", ".join(dict.fromkeys(row.selection for row in rows))
    point = _METRICS[metric].point
    return f"Each point is {point} (n = {counts} examples). The ring is the step that the rule “{rules}” selects."


def _weighted(group: Sequence[TrainRecord], weights: Sequence[int], name: str) -> float:
    having = [(one.terms[name], weight) for one, weight in zip(group, weights, strict=True) if name in one.terms]
    return math.fsum(value * weight for value, weight in having) / sum(weight for _, weight in having)


def _growth(place: int, label: str, runs: Sequence[FinishedRun]) -> Series:
    found: dict[int, list[float]] = {}
    for run in runs:
        accuracy = statistics.fmean(record.accuracy for record in run.selected("target"))
        found.setdefault(len(run.sources), []).append(100 * accuracy)
    summaries = {number: summarise(values) for number, values in found.items()}
    spreads = {number: one.spread for number, one in summaries.items() if one.spread is not None}
    return Series(
        place,
        label,
        values={number: one.mean for number, one in summaries.items()},
        deviations=spreads,
        notes={number: f" ± {spread:.1f} (n = {summaries[number].n})" for number, spread in spreads.items()},
    )


def _percent(value: float) -> str:
    return f"{value:.1f} %"


def _term(records: Sequence[TrainRecord], name: str | None) -> dict[int, float]:
    if name is None:
        return {record.step: math.fsum(record.terms.values()) for record in records}
    return {record.step: record.terms[name] for record in records if name in record.terms}


def _last_step(runs: Sequence[FinishedRun]) -> int:
    return max(run.steps for run in runs)
