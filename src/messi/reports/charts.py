"""Learning curves as geometry: every place is a percentage of the plot, counted from its upper left corner."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from messi.core.records import TrainRecord
from messi.evaluation.selection import RULES, Reader
from messi.reports.runs import FinishedRun, run_labels


@dataclass(frozen=True)
class Series:
    """One run's values by step."""

    run: int
    """The place of the run on the page; it decides colour and dashes."""
    label: str
    values: dict[int, float]
    selected: int = 0
    """The step to mark; 0 marks none."""


@dataclass(frozen=True)
class Tick:
    """A labelled place on an axis."""

    place: float
    text: str


@dataclass(frozen=True)
class Point:
    """One value in the plot."""

    x: float
    y: float


@dataclass(frozen=True)
class Line:
    """A series in the plot."""

    run: int
    points: tuple[Point, ...]
    selected: Point | None


@dataclass(frozen=True)
class Stop:
    """All values at one step: what is shown when the pointer is near it."""

    x: float
    left: float
    width: float
    text: str


@dataclass(frozen=True)
class Chart:
    """Everything that a chart shows."""

    title: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    lines: tuple[Line, ...]
    stops: tuple[Stop, ...]


def accuracy_chart(runs: Sequence[FinishedRun]) -> Chart:
    """Draw mean validation accuracy against step, one line per run, with the selected step marked."""
    series = []
    for place, (run, label) in enumerate(zip(runs, run_labels(runs), strict=True)):
        rule = RULES[run.selection]
        shares = rule.scores(Reader(run.records, rule.roles, rule.name))
        values = {step: 100 * share for step, share in shares.items()}
        series.append(Series(place, label, values, run.selected_step))
    title = "Mean accuracy on the validation data, %"
    return draw(title, series, "{:.1f} %".format, last=_last_step(runs))


def loss_charts(runs: Sequence[FinishedRun]) -> list[Chart]:
    """Draw the weighted loss terms against step, one chart per term, after their sum where there are several."""
    trains = [run.of_kind(TrainRecord) for run in runs]
    names = list(dict.fromkeys(name for train in trains for record in train for name in record.terms))
    labels = run_labels(runs)
    charts = []
    for name in [None, *names] if len(names) > 1 else names:
        series = [
            Series(place, label, values)
            for place, (train, label) in enumerate(zip(trains, labels, strict=True))
            if (values := _term(train, name))
        ]
        charts.append(draw(name or "loss (sum of the terms)", series, "{:.3g}".format, last=_last_step(runs)))
    return charts


def draw(title: str, series: Sequence[Series], show: Callable[[float], str], *, last: int) -> Chart:
    """Place series of at least one value in a plot of the steps from 0 to ``last``."""
    values = [value for one in series for value in one.values.values()]
    y_ticks = ticks(min(values), max(values))
    bottom, top = y_ticks[0], y_ticks[-1]

    def x(step: float) -> float:
        return round(100 * step / last, 3)

    def y(value: float) -> float:
        return round(100 * (top - value) / (top - bottom), 3)

    def line(one: Series) -> Line:
        points = {step: Point(x(step), y(value)) for step, value in sorted(one.values.items())}
        return Line(one.run, tuple(points.values()), points.get(one.selected))

    return Chart(
        title=title,
        x_ticks=tuple(Tick(x(t), f"{t:g}") for t in ticks(0, last) if t <= last and t == int(t)),
        y_ticks=tuple(Tick(y(t), f"{t:g}") for t in y_ticks),
        lines=tuple(line(one) for one in series),
        stops=_stops(series, x, show),
    )


def ticks(low: float, high: float) -> list[float]:
    """Return round numbers in equal steps, the first not above ``low`` and the last not below ``high``."""
    if low == high:
        low, high = (low - abs(low) / 10, high) if low else (0.0, 1.0)
    rough = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, last + 1)]


def _term(records: Sequence[TrainRecord], name: str | None) -> dict[int, float]:
    if name is None:
        return {record.step: math.fsum(record.terms.values()) for record in records}
    return {record.step: record.terms[name] for record in records if name in record.terms}


def _last_step(runs: Sequence[FinishedRun]) -> int:
    return max(run.steps for run in runs)


def _stops(series: Sequence[Series], x: Callable[[float], float], show: Callable[[float], str]) -> tuple[Stop, ...]:
    steps = sorted({step for one in series for step in one.values})
    borders = [0.0, *((a + b) / 2 for a, b in pairwise(steps)), float(steps[-1])]
    stops = []
    for step, (left, right) in zip(steps, pairwise(borders), strict=True):
        values = [f"{one.label}: {show(one.values[step])}" for one in series if step in one.values]
        text = "\n".join([f"step {step}", *values])
        stops.append(Stop(x(step), x(left), round(x(right) - x(left), 3), text))
    return tuple(stops)
