"""Figures as SVG that stand alone or in a page: curves with bands and the paper's values, and heat maps."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from messi.core.errors import MessiError
from messi.reports.charts import Point, Stop, Tick, stops, ticks
from messi.reports.number_format import significant
from messi.reports.rendering import environment
from messi.reports.statistics import Summary

WIDTH, HEIGHT = 340, 200
"""Of the plot in a panel, in pixels; titles and labels stand outside."""
_REACH = 20
"""So far outside of the plot one can point at its first and its last values."""


@dataclass(frozen=True)
class Curve:
    """Summaries by x, and the paper's values where it has them."""

    label: str
    points: Mapping[float, Summary]
    paper: Mapping[float, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One plot with axes of its own."""

    title: str
    x_label: str
    curves: tuple[Curve, ...]
    logarithmic: bool = False
    """Of x. Zero, which has no logarithm, stands one power of ten left of the smallest other value."""
    level: tuple[str, float] | None = None
    """A named height, such as chance, to draw across."""

    @property
    def places(self) -> list[float]:
        """All x that have a point."""
        return sorted({x for curve in self.curves for x in (*curve.points, *curve.paper)})

    @property
    def drawable(self) -> bool:
        """Whether there is a point yet, and the axis has a place for all of them."""
        return bool(self.places) and self.places[0] >= 0 and (self.places[-1] > 0 or not self.logarithmic)


@dataclass(frozen=True)
class DrawnCurve:
    """A curve in pixels from the upper left corner of its plot."""

    look: int
    """The place of its label in the legend; it decides colour and dashes."""
    dots: tuple[Point, ...]
    paper: tuple[Point, ...]
    band: tuple[tuple[float, float], ...]
    """The corners of the area within one deviation."""


@dataclass(frozen=True)
class DrawnPanel:
    """A panel in pixels."""

    title: str
    x_label: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    curves: tuple[DrawnCurve, ...]
    level: Tick | None
    stops: tuple[Stop, ...]


def line_figure(panels: Sequence[Panel]) -> str:
    """Draw panels side by side over one legend; curves of the same label look the same."""
    labels = list(dict.fromkeys(curve.label for panel in panels for curve in panel.curves))
    with_paper = any(curve.paper for panel in panels for curve in panel.curves)
    return (
        environment()
        .get_template("lines.svg")
        .render(
            title=", ".join(panel.title for panel in panels),
            width=WIDTH,
            height=HEIGHT,
            panels=[_draw(panel, labels) for panel in panels],
            labels=labels,
            with_paper=with_paper,
        )
    )


def with_signs(caption: str, panels: Sequence[Panel]) -> str:
    """Return a caption that also says what bands and rings are, of those that occur: lines alone may be of a method."""
    curves = [curve for panel in panels for curve in panel.curves]
    bands = any(one.spread for curve in curves for one in curve.points.values())
    rings = any(curve.paper for curve in curves)
    meanings = ["bands are one deviation over seeds"] * bands + ["rings on thin dotted lines are the paper's"] * rings
    return "; ".join([caption, ", ".join(meanings)] if meanings else [caption]) + "."


def heat_map(title: str, rows: Sequence[str], columns: Sequence[str], values: Sequence[Sequence[float | None]]) -> str:
    """Draw shares, or cosines, as a grid of shades from 0 to 1; a cell without value stays blank."""
    if [len(line) for line in values] != [len(columns)] * len(rows):
        raise MessiError(
            f"The heat map '{title}' needs {len(rows)} rows of {len(columns)} `values`; put None where there is none."
        )
    template = environment().get_template("heat.svg")
    return template.render(title=title, rows=rows, columns=columns, values=values, significant=significant)


def _draw(panel: Panel, labels: Sequence[str]) -> DrawnPanel:
    x, x_ticks = _x_axis(panel)
    heights = [height for curve in panel.curves for height in _heights(curve)]
    heights += [panel.level[1]] if panel.level else []
    if not all(map(math.isfinite, heights)):
        raise MessiError(
            f"The panel '{panel.title}' has a value that is not finite; leave that point out of its curve."
        )
    y_values = ticks(min(heights), max(heights))

    def y(value: float) -> float:
        return round(HEIGHT * (y_values[-1] - value) / (y_values[-1] - y_values[0]), 2)

    return DrawnPanel(
        title=panel.title,
        x_label=panel.x_label,
        x_ticks=x_ticks,
        y_ticks=tuple(Tick(y(value), significant(value, 6)) for value in y_values),
        curves=tuple(_curve(curve, labels.index(curve.label), x, y) for curve in panel.curves),
        level=Tick(y(panel.level[1]), panel.level[0]) if panel.level else None,
        stops=stops({x(at): _values_at(panel, at) for at in panel.places}, -_REACH, WIDTH + _REACH),
    )


def _x_axis(panel: Panel) -> tuple[Callable[[float], float], tuple[Tick, ...]]:
    values = panel.places
    if not panel.drawable:
        raise MessiError(
            f"The panel '{panel.title}' needs `curves` with points at x of 0 or more, one of them above 0."
        )
    smallest = next((value for value in values if value > 0), 1.0)

    def scale(value: float) -> float:
        if not panel.logarithmic:
            return value
        return math.log10(value) if value else math.log10(smallest) - 1

    first, span = scale(values[0]), scale(values[-1]) - scale(values[0]) or 1.0

    def x(value: float) -> float:
        return round(WIDTH * (scale(value) - first) / span, 2)

    return x, tuple(Tick(x(value), f"{value:g}") for value in values)


def _heights(curve: Curve) -> list[float]:
    ends = [one.mean + sign * (one.spread or 0) for one in curve.points.values() for sign in (-1, 1)]
    return [*ends, *curve.paper.values()]


def _curve(curve: Curve, look: int, x: Callable[[float], float], y: Callable[[float], float]) -> DrawnCurve:
    points = sorted(curve.points.items())
    upper = [(x(at), y(one.mean + (one.spread or 0))) for at, one in points]
    lower = [(x(at), y(one.mean - (one.spread or 0))) for at, one in points]
    with_band = any(one.spread for _, one in points)
    return DrawnCurve(
        look=look,
        dots=tuple(Point(x(at), y(one.mean)) for at, one in points),
        paper=tuple(Point(x(at), y(value)) for at, value in sorted(curve.paper.items())),
        band=(*upper, *reversed(lower)) if with_band else (),
    )


def _values_at(panel: Panel, at: float) -> str:
    texts = [f"{panel.x_label} {at:g}"]
    for curve in panel.curves:
        words = [_words(curve.points[at])] if at in curve.points else []
        words += [f"paper {significant(curve.paper[at], 4)}"] if at in curve.paper else []
        texts += [f"{curve.label}: {', '.join(words)}"] if words else []
    return "\n".join(texts)


def _words(one: Summary) -> str:
    spread = f" ± {one.spread:.2g}" if one.spread is not None else ""
    return f"{significant(one.mean, 4)}{spread} (n = {one.n})"
