"""The one chart of all pages and figures, and the one heat map.

``Chart`` holds series of values; ``Chart.drawing`` places them in percent of the plot, from its upper left
corner. The template ``chart.html`` draws that at any size: on a page as wide as its column, in a figure file in panels.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from messi.core.errors import MessiError
from messi.core.records import Role
from messi.reports.html import environment
from messi.reports.number_format import significant, with_spread
from messi.reports.statistics import Summary

PANEL = (340, 200)
"""Width and height of a plot in a figure file, in pixels."""
_REACH = 6
"""How far outside the plot its first and last values can still be pointed at, in percent of its width."""
_SHARES = (0.0, 25.0, 50.0, 75.0, 100.0)


def _four_digits(value: float) -> str:
    return significant(value, 4)


class Bubble(NamedTuple):
    """A point with its size and its text."""

    radius: float
    """In pixels."""
    text: str


@dataclass(frozen=True)
class Series:
    """One line of a chart."""

    label: str
    points: Mapping[float, Summary | float]
    """By x. A summary is drawn with a band of one deviation."""
    look: int | None = None
    """Selects colour and dashes; by default the place of the label in the legend."""
    selected: float | None = None
    """The x to mark with a ring."""
    paper: Mapping[float, float] = field(default_factory=dict)
    """The paper's values."""
    bubbles: Mapping[float, Bubble] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Series over a common x."""

    title: str
    series: tuple[Series, ...]
    x: str = "step {}"
    """The text for a value of x; without the value, it is the label of the axis."""
    show: Callable[[float], str] = _four_digits
    """How to write a value of y."""
    last: float | None = None
    """The end of an x axis that starts at 0 and has round ticks; None for an axis with a tick at every point."""
    logarithmic: bool = False
    """Of x. Zero, which has no logarithm, is drawn one power of ten left of the smallest other value."""
    level: tuple[str, float] | None = None
    """A named height, such as chance, drawn across the plot."""
    diagonal: bool = False
    """Whether both axes run from 0 to 100 and the diagonal is drawn."""
    note: str = ""
    """Shown below the chart on a page."""

    @property
    def axis(self) -> str:
        """The label of the x axis."""
        return self.x.replace("{}", "").strip()

    @property
    def places(self) -> list[float]:
        """Every x that has a point."""
        return sorted({x for one in self.series for x in (*one.points, *one.paper)})

    @property
    def drawable(self) -> bool:
        """Whether there is a point and every point has a place on the axis."""
        return bool(self.places) and self.places[0] >= 0 and (self.places[-1] > 0 or not self.logarithmic)

    @property
    def drawing(self) -> "Drawing":
        """The chart as geometry."""
        return _draw(self)


class Tick(NamedTuple):
    """A labelled place on an axis."""

    place: float
    text: str


class Point(NamedTuple):
    """A place in the plot."""

    x: float
    y: float


class Stop(NamedTuple):
    """The tooltip of all values at one x, and the part of the plot that shows it."""

    x: float
    left: float
    width: float
    text: str


@dataclass(frozen=True)
class Line:
    """A series in the plot."""

    look: int
    points: tuple[Point, ...]
    band: tuple[Point, ...]
    """The corners of the area within one deviation; empty without deviations."""
    paper: tuple[Point, ...]
    selected: Point | None
    bubbles: tuple[tuple[Point, Bubble], ...]


@dataclass(frozen=True)
class Drawing:
    """A chart in percent of its plot."""

    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    lines: tuple[Line, ...]
    level: Tick | None
    stops: tuple[Stop, ...]


@dataclass(frozen=True)
class HeatRow:
    """A value for every column; None where nothing was measured."""

    name: str
    values: tuple[float | None, ...]
    count: int | None = None
    """The number of examples, if the rows of the map state it."""


@dataclass(frozen=True)
class HeatGroup:
    """Rows under the heading of a domain, or under none."""

    rows: tuple[HeatRow, ...]
    domain: str = ""
    role: Role = "source_val"


@dataclass(frozen=True)
class HeatMap:
    """Values from 0 to 1, or cosines from -1 to 1, as shades."""

    title: str
    of: str
    """What a row is."""
    columns: tuple[str, ...]
    groups: tuple[HeatGroup, ...]
    note: str = ""
    """Shown below the map."""

    def __post_init__(self) -> None:
        rows = [row for group in self.groups for row in group.rows]
        if any(len(row.values) != len(self.columns) for row in rows):
            raise MessiError(
                f"The heat map '{self.title}' needs {len(self.columns)} values in every row; use None for gaps."
            )


def line_figure(charts: Sequence[Chart]) -> str:
    """Return charts side by side over one legend as a self-contained SVG; series with the same label look the same."""
    labels = list(dict.fromkeys(one.label for chart in charts for one in chart.series))
    with_paper = any(one.paper for chart in charts for one in chart.series)
    panels = [(chart, _draw(chart, labels)) for chart in charts]
    template = environment().get_template("lines.svg")
    return template.render(panels=panels, size=PANEL, labels=labels, with_paper=with_paper)


def heat_figure(heat_map: HeatMap) -> str:
    """Return a heat map as a self-contained SVG."""
    rows = [row for group in heat_map.groups for row in group.rows]
    return environment().get_template("heat.svg").render(map=heat_map, rows=rows, significant=significant)


def explained_caption(caption: str, charts: Sequence[Chart]) -> str:
    """Return a caption that explains bands and rings if they occur."""
    series = [one for chart in charts for one in chart.series]
    bands = any(_spread(value) for one in series for value in one.points.values())
    rings = any(one.paper for one in series)
    marks = ["bands are one deviation over seeds"] * bands + ["rings on thin dotted lines are the paper's"] * rings
    return "; ".join([caption, ", ".join(marks)] if marks else [caption]) + "."


def ticks(low: float, high: float) -> list[float]:
    """Return round numbers at equal distances, the first not above ``low`` and the last not below ``high``."""
    if low == high:
        low, high = (low - abs(low) / 10, high) if low else (0.0, 1.0)
    rough = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, last + 1)]


def _draw(chart: Chart, labels: Sequence[str] | None = None) -> Drawing:
    labels = labels or [one.label for one in chart.series]
    x, x_ticks = _x_axis(chart)
    y_values = _y_values(chart)

    def y(value: float) -> float:
        return round(100 * (y_values[-1] - value) / (y_values[-1] - y_values[0]), 3)

    return Drawing(
        x_ticks=x_ticks,
        y_ticks=tuple(Tick(y(value), significant(value, 6)) for value in y_values),
        lines=tuple(
            _line(one, labels.index(one.label) if one.look is None else one.look, x, y) for one in chart.series
        ),
        level=Tick(y(chart.level[1]), chart.level[0]) if chart.level else None,
        stops=() if any(one.bubbles for one in chart.series) else _stops(chart, x),
    )


def _x_axis(chart: Chart) -> tuple[Callable[[float], float], tuple[Tick, ...]]:
    if not chart.drawable:
        raise MessiError(
            f"The chart '{chart.title}' needs `series` with points at x of 0 or more, one of them above 0 on a "
            "logarithmic axis."
        )
    values = chart.places
    smallest = next((value for value in values if value > 0), 1.0)

    def scale(value: float) -> float:
        if not chart.logarithmic:
            return value
        return math.log10(value) if value else math.log10(smallest) - 1

    first, end = (0.0, chart.last) if chart.last is not None else (scale(values[0]), scale(values[-1]))
    span = end - first or 1.0

    def x(value: float) -> float:
        return round(100 * (scale(value) - first) / span, 3)

    if chart.diagonal:
        shown: Sequence[float] = _SHARES
    elif chart.last is not None:
        shown = [tick for tick in ticks(0, chart.last) if tick <= chart.last and tick == int(tick)]
    else:
        shown = values
    return x, tuple(Tick(x(value), _plain(value)) for value in shown)


def _y_values(chart: Chart) -> Sequence[float]:
    """Return the ticks of the y axis."""
    heights = [height for one in chart.series for height in _heights(one)] + ([chart.level[1]] if chart.level else [])
    if not all(map(math.isfinite, heights)):
        raise MessiError(
            f"The chart '{chart.title}' has a value that is not finite; leave that point out of its series."
        )
    return _SHARES if chart.diagonal else ticks(min(heights), max(heights))


def _heights(one: Series) -> list[float]:
    ends = [_mean(value) + sign * _spread(value) for value in one.points.values() for sign in (-1, 1)]
    return [*ends, *one.paper.values()]


def _line(one: Series, look: int, x: Callable[[float], float], y: Callable[[float], float]) -> Line:
    found = sorted(one.points.items())
    points = {at: Point(x(at), y(_mean(value))) for at, value in found}
    upper = [Point(x(at), y(_mean(value) + _spread(value))) for at, value in found]
    lower = [Point(x(at), y(_mean(value) - _spread(value))) for at, value in found]
    return Line(
        look=look,
        points=tuple(points.values()),
        band=(*upper, *reversed(lower)) if any(_spread(value) for _, value in found) else (),
        paper=tuple(Point(x(at), y(value)) for at, value in sorted(one.paper.items())),
        selected=points.get(one.selected) if one.selected is not None else None,
        bubbles=tuple((points[at], bubble) for at, bubble in sorted(one.bubbles.items())),
    )


def _stops(chart: Chart, x: Callable[[float], float]) -> tuple[Stop, ...]:
    """Divide the plot among the values of x: each part belongs to the nearest."""
    texts = {x(at): _text_at(chart, at) for at in chart.places}
    places = sorted(texts)
    left, right = (0.0, places[-1]) if chart.last is not None else (-_REACH, 100 + _REACH)
    borders = [left, *((a + b) / 2 for a, b in pairwise(places)), right]
    return tuple(
        Stop(place, round(start, 3), round(end - start, 3), texts[place])
        for place, (start, end) in zip(places, pairwise(borders), strict=True)
    )


def _text_at(chart: Chart, at: float) -> str:
    lines = [chart.x.format(_plain(at))]
    for one in chart.series:
        words = [_words(one.points[at], chart.show)] if at in one.points else []
        words += [f"paper {chart.show(one.paper[at])}"] if at in one.paper else []
        lines += [f"{one.label}: {', '.join(words)}"] if words else []
    return "\n".join(lines)


def _words(value: Summary | float, show: Callable[[float], str]) -> str:
    if not isinstance(value, Summary):
        return show(value)
    spread = "" if value.spread is None else f"{value.spread:.2g}"
    return f"{with_spread(show(value.mean), spread)} (n = {value.n})"


def _plain(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:g}"


def _mean(value: Summary | float) -> float:
    return value.mean if isinstance(value, Summary) else value


def _spread(value: Summary | float) -> float:
    return (value.spread or 0.0) if isinstance(value, Summary) else 0.0
