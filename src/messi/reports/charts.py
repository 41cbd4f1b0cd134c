"""Charts as geometry: every place is a percentage of the plot, counted from its upper left corner."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from messi.reports.number_format import significant


@dataclass(frozen=True)
class Series:
    """The values of one line, by step or by another whole number."""

    place: int
    """The place of the run or the method on the page; it decides colour and dashes."""
    label: str
    values: Mapping[int, float]
    selected: int = 0
    """The step to mark; 0 marks none."""
    deviations: Mapping[int, float] = field(default_factory=dict)
    """Drawn as bars around the values."""
    notes: Mapping[int, str] = field(default_factory=dict)
    """What is said after a value when one points at it."""


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
class Bar:
    """A value give or take its deviation."""

    x: float
    top: float
    bottom: float


@dataclass(frozen=True)
class Line:
    """A series in the plot."""

    place: int
    points: tuple[Point, ...]
    selected: Point | None
    bars: tuple[Bar, ...]


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
    axis: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    lines: tuple[Line, ...]
    stops: tuple[Stop, ...]


def draw(
    title: str, series: Sequence[Series], show: Callable[[float], str], *, last: int, unit: str = "step {}"
) -> Chart:
    """Place series of at least one value in a plot of the numbers from 0 to ``last``; ``unit`` says what they count."""
    ends = [
        value + sign * one.deviations.get(step, 0.0)
        for one in series
        for step, value in one.values.items()
        for sign in (-1, 1)
    ]
    y_ticks = ticks(min(ends), max(ends))
    bottom, top = y_ticks[0], y_ticks[-1]

    def x(step: float) -> float:
        return round(100 * step / last, 3)

    def y(value: float) -> float:
        return round(100 * (top - value) / (top - bottom), 3)

    steps = sorted({step for one in series for step in one.values})
    texts = {x(step): _values_at(series, step, show, unit) for step in steps}
    return Chart(
        title=title,
        axis=unit.replace("{}", "").strip(),
        x_ticks=tuple(Tick(x(t), f"{t:g}") for t in ticks(0, last) if t <= last and t == int(t)),
        y_ticks=tuple(Tick(y(t), significant(t, 6)) for t in y_ticks),
        lines=tuple(_line(one, x, y) for one in series),
        stops=stops(texts, 0, x(steps[-1])),
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


def stops(texts: Mapping[float, str], left: float, right: float) -> tuple[Stop, ...]:
    """Divide an axis from ``left`` to ``right`` among texts by their places: each part of it goes to the nearest."""
    places = sorted(texts)
    borders = [left, *((a + b) / 2 for a, b in pairwise(places)), right]
    return tuple(
        Stop(place, round(start, 3), round(end - start, 3), texts[place])
        for place, (start, end) in zip(places, pairwise(borders), strict=True)
    )


def _line(one: Series, x: Callable[[float], float], y: Callable[[float], float]) -> Line:
    points = {step: Point(x(step), y(value)) for step, value in sorted(one.values.items())}
    bars = (Bar(x(s), y(one.values[s] + d), y(one.values[s] - d)) for s, d in sorted(one.deviations.items()))
    return Line(one.place, tuple(points.values()), points.get(one.selected), tuple(bars))


def _values_at(series: Sequence[Series], step: int, show: Callable[[float], str], unit: str) -> str:
    values = (f"{one.label}: {show(one.values[step])}{one.notes.get(step, '')}" for one in series if step in one.values)
    return "\n".join([unit.format(step), *values])
