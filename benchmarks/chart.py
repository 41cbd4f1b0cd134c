"""A figure of small line charts as SVG, without a plotting library: one value per category, on a common scale."""

import datetime
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

WIDTH, ROW, HEAD, COLUMNS = 900, 268, 52, 2
LEFT, RIGHT, ABOVE, BELOW = 66, 20, 44, 56
INK, QUIET, GRID, ACCENT = "#1f2933", "#5b6670", "#e3e7ea", "#0b6fa4"


@dataclass(frozen=True)
class Panel:
    """One chart: a value for each category."""

    title: str
    x_label: str
    categories: Sequence[object]
    values: Sequence[float]


def figure(title: str, y_label: str, panels: Sequence[Panel]) -> str:
    """Return the panels as one SVG picture, two in a row; the common scale begins at zero."""
    height = HEAD + ROW * math.ceil(len(panels) / COLUMNS)
    ticks = _ticks(max(value for panel in panels for value in panel.values))
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    style = f'font-family="Helvetica, Arial, sans-serif" font-size="13" fill="{INK}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" {style}>',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        _text(LEFT, 32, title, "start", 'font-size="17" font-weight="600"'),
    ]
    for place, panel in enumerate(panels):
        row, column = divmod(place, COLUMNS)
        parts.append(f'<g transform="translate({column * WIDTH // COLUMNS} {HEAD + row * ROW})">')
        parts += [*_frame(panel, y_label, ticks), *_line(panel, ticks[-1]), "</g>"]
    return "\n".join([*parts, "</svg>\n"])


def save(svg: str, name: str) -> str:
    """Write a figure to ``benchmarks/results`` under today's date; return the name of the file."""
    path = Path(__file__).parent / "results" / f"{name}_{datetime.datetime.now(datetime.UTC).date()}.svg"
    path.write_text(svg)
    return path.name


def _ticks(largest: float) -> list[float]:
    """Return round axis values from 0 to one that leaves room for a label above the largest value."""
    power = 10 ** math.floor(math.log10(largest / 4))
    step = next(step for step in (power, 2 * power, 5 * power, 10 * power) if 5 * step >= 1.08 * largest)
    return [number * step for number in range(math.ceil(1.08 * largest / step) + 1)]


def _x(panel: Panel, place: int) -> float:
    width = WIDTH / COLUMNS - LEFT - RIGHT
    return LEFT + width * (place + 0.5) / len(panel.categories)


def _y(value: float, top: float) -> float:
    return ROW - BELOW - (ROW - ABOVE - BELOW) * value / top


def _frame(panel: Panel, y_label: str, ticks: list[float]) -> list[str]:
    """Return title, gridlines, and both axes with their labels."""
    right, bottom = WIDTH / COLUMNS - RIGHT, _y(0, 1)
    middle = _y(0.5, 1)
    parts = [
        _text(LEFT, 24, panel.title, "start", 'font-weight="600"'),
        _text((LEFT + right) / 2, ROW - 16, panel.x_label, "middle", f'fill="{QUIET}"'),
        _text(22, middle, y_label, "middle", f'fill="{QUIET}" transform="rotate(-90 22 {middle:.1f})"'),
    ]
    for tick in ticks:
        y = _y(tick, ticks[-1])
        colour = GRID if tick else QUIET
        parts.append(f'<line x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" stroke="{colour}"/>')
        parts.append(_text(LEFT - 8, y + 4, f"{tick:g}", "end", f'fill="{QUIET}"'))
    for place, category in enumerate(panel.categories):
        parts.append(_text(_x(panel, place), bottom + 18, str(category), "middle"))
    return parts


def _line(panel: Panel, top: float) -> list[str]:
    """Return the line through the values, with a dot and a label on each."""
    points = [(_x(panel, place), _y(value, top)) for place, value in enumerate(panel.values)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    parts = [f'<polyline points="{path}" fill="none" stroke="{ACCENT}" stroke-width="2" stroke-linejoin="round"/>']
    halo = f'fill="{ACCENT}" font-size="12" stroke="#ffffff" stroke-width="3" paint-order="stroke"'
    decimals = max(0, 3 - math.ceil(math.log10(top)))
    for place, ((x, y), value) in enumerate(zip(points, panel.values, strict=True)):
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{ACCENT}" stroke="#ffffff" stroke-width="1.5"/>')
        before, after = (points[min(max(other, 0), len(points) - 1)][1] for other in (place - 1, place + 1))
        # Where the line is steep on one side, the label moves to the other.
        anchor, shift = ("end", 4) if y - after > 25 else ("start", -4) if y - before > 25 else ("middle", 0)
        parts.append(_text(x + shift, y - 10, f"{value:.{decimals}f}", anchor, halo))
    return parts


def _text(x: float, y: float, text: str, anchor: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {more}>{escape(text)}</text>'
