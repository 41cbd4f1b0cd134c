"""The curves of runs: validation and loss by step, accuracy by number of source domains."""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from messi.core.records import EvaluationRecord, TrainRecord
from messi.evaluation.selection import RULES, Metric, Reader
from messi.reports.charts import Chart, Series
from messi.reports.measures import SCORES
from messi.reports.number_format import significant
from messi.reports.result_tables import GROWTH, ResultRow, group_by_method
from messi.reports.runs import FinishedRun, run_labels
from messi.reports.statistics import summarise

MOST_POINTS = 100
"""Of a loss curve; more cannot be seen and make the page large."""


@dataclass(frozen=True)
class ValidationChart:
    """The score by which the steps of some runs were selected."""

    chart: Chart
    caption: str
    selected: dict[int, float]
    """The score of the selected weights in percent, by the place of the run on the page."""


def validation_charts(runs: Sequence[FinishedRun], rows: Sequence[ResultRow]) -> list[ValidationChart]:
    """Draw the selection score of every run by step, with the selected step marked; one chart per metric."""
    series: dict[Metric, dict[int, Series]] = {}
    for place, (run, row) in enumerate(zip(runs, rows, strict=True)):
        if run.average:
            continue
        # No rule selected a step if weights were averaged.
        rule = RULES.get(run.selection, RULES[run.validation])
        shares = rule.scores(Reader(run.records, rule.role, rule.name))
        values = {float(step): 100 * share for step, share in shares.items()}
        series.setdefault(rule.metric, {})[place] = Series(row.label, values, place, run.marked_step)
    return [
        ValidationChart(
            chart=_by_step(f"{SCORES[metric].name} on the validation data, %", list(found.values()), runs, _percent),
            caption=_validation_caption(metric, [rows[place] for place in found]),
            selected={place: _selected(one, rows[place]) for place, one in found.items()},
        )
        for metric, found in series.items()
    ]


def domain_charts(runs: Sequence[FinishedRun]) -> list[Chart]:
    """Draw the validation accuracy by step, one chart per domain."""
    labels = run_labels(runs)
    values: dict[str, dict[int, dict[float, float]]] = {}
    for place, run in enumerate(runs):
        for record in run.of_kind(EvaluationRecord):
            if record.role == run.validation and not record.averaged:
                values.setdefault(record.domain, {}).setdefault(place, {})[record.step] = 100 * record.accuracy
    charts = []
    for domain, by_run in values.items():
        series = [Series(labels[place], found, place, runs[place].marked_step) for place, found in by_run.items()]
        charts.append(_by_step(domain, series, runs, _percent))
    return charts


def loss_charts(runs: Sequence[FinishedRun]) -> list[Chart]:
    """Draw the weighted loss terms by step, one chart per term, preceded by their sum if there are several."""
    trains = [thinned(run.of_kind(TrainRecord)) for run in runs]
    names = list(dict.fromkeys(name for train in trains for record in train for name in record.terms))
    labels = run_labels(runs)
    charts = []
    for name in [None, *names] if len(names) > 1 else names:
        series = [
            Series(label, values, place)
            for place, (train, label) in enumerate(zip(trains, labels, strict=True))
            if (values := _term(train, name))
        ]
        charts.append(_by_step(name or "loss (sum of the terms)", series, runs, significant))
    return charts


def growth_chart(runs: Sequence[FinishedRun]) -> Chart | None:
    """Draw target accuracy by number of source domains, if runs with one target differ in that number."""
    if len({(run.data, run.targets) for run in runs}) > 1 or not all(run.targets for run in runs):
        return None
    groups = group_by_method(runs, ignoring=GROWTH)
    series = tuple(_growth(label, members) for label, members in groups.items())
    if not any(len(one.points) > 1 for one in series):
        return None
    last = max(len(run.sources) for run in runs)
    return Chart(title="Accuracy on the target, %", series=series, x="{} source domains", show=_percent, last=last)


def thinned(records: Sequence[TrainRecord]) -> list[TrainRecord]:
    """Merge neighbours until at most ``MOST_POINTS`` remain; each is the mean over the steps since the one before."""
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
    return (
        f"Each point is {SCORES[metric].meaning} (n = {counts} examples). The ring marks the step selected by the rule "
        f"“{rules}”."
    )


def _weighted(group: Sequence[TrainRecord], weights: Sequence[int], name: str) -> float:
    having = [(one.terms[name], weight) for one, weight in zip(group, weights, strict=True) if name in one.terms]
    return math.fsum(value * weight for value, weight in having) / sum(weight for _, weight in having)


def _growth(label: str, runs: Sequence[FinishedRun]) -> Series:
    found: dict[int, list[float]] = {}
    for run in runs:
        accuracy = statistics.fmean(record.accuracy for record in run.selected("target"))
        found.setdefault(len(run.sources), []).append(100 * accuracy)
    return Series(label, {number: summarise(values) for number, values in found.items()})


def _by_step(title: str, series: Sequence[Series], runs: Sequence[FinishedRun], show: Callable[[float], str]) -> Chart:
    return Chart(title=title, series=tuple(series), show=show, last=max(run.steps for run in runs))


def _selected(one: Series, row: ResultRow) -> float:
    """Return the score of the selected weights in percent, which for averaged weights is on no curve."""
    value = one.points.get(one.selected) if one.selected is not None else None
    return value if isinstance(value, float) else 100 * row.validation


def _percent(value: float) -> str:
    return f"{value:.1f} %"


def _term(records: Sequence[TrainRecord], name: str | None) -> dict[float, float]:
    if name is None:
        return {record.step: math.fsum(record.terms.values()) for record in records}
    return {record.step: record.terms[name] for record in records if name in record.terms}
