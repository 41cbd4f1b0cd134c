import math
import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from messi.core.errors import MessiError
from messi.reports.charts import (
    PANEL,
    Chart,
    HeatGroup,
    HeatMap,
    HeatRow,
    Point,
    Series,
    explained_caption,
    heat_figure,
    line_figure,
    ticks,
)
from messi.reports.number_format import significant
from messi.reports.statistics import Summary

WIDTH, HEIGHT = PANEL
SVG = "{http://www.w3.org/2000/svg}"


def panel(*series: Series, logarithmic: bool = False, level: tuple[str, float] | None = None) -> Chart:
    return Chart(title="Accuracy", x="K {}", series=series, logarithmic=logarithmic, level=level)


def by_step(*series: Series, last: int) -> Chart:
    return Chart(title="t", series=series, show=str, last=last)


def grid(title: str, rows: list[str], columns: list[str], values: list[list[float | None]]) -> HeatMap:
    lines = (HeatRow(name, tuple(line)) for name, line in zip(rows, values, strict=True))
    return HeatMap(title, "class", tuple(columns), (HeatGroup(tuple(lines)),))


def points(text: str, tag: str, kind: str) -> list[list[tuple[float, float]]]:
    found = [one.get("points", "") for one in elements(text, tag) if one.get("class") == kind]
    return [[(float(x), float(y)) for x, y in re.findall(r"([-\d.]+),([-\d.]+)", value)] for value in found]


def elements(text: str, tag: str) -> list[ET.Element]:
    return list(ET.fromstring(text).iter(SVG + tag))  # noqa: S314 - our own text


def percent(element: ET.Element, name: str) -> float:
    return float(element.get(name, "").removesuffix("%"))


def texts(text: str, tag: str = "text") -> list[str]:
    return [one.text or "" for one in elements(text, tag)]


def test_places_of_a_line_and_its_band() -> None:
    curve = Series(
        "ours",
        {10: Summary(80, 10, 3), 0: Summary(60, None, 1), 5: Summary(70, 0, 3)},
        paper={0: 50.0, 10: 90.0},
    )
    text = line_figure([panel(curve)])
    # Values from 50 to 90: the axis has these ends.
    assert points(text, "polyline", "curve")[0] == [(0, 0.75 * HEIGHT), (WIDTH / 2, HEIGHT / 2), (WIDTH, HEIGHT / 4)]
    assert points(text, "polyline", "curve paper")[0] == [(0, HEIGHT), (WIDTH, 0)]
    half = (WIDTH / 2, HEIGHT / 2)
    start = (0, 0.75 * HEIGHT)
    assert points(text, "polygon", "band") == [[start, half, (WIDTH, 0), (WIDTH, HEIGHT / 2), half, start]]


def test_pointing_shows_the_values_of_all_series() -> None:
    ours = Series("ours", {0: Summary(-0.25, None, 1), 10: Summary(80, 10, 3)}, paper={10: 90.0})
    text = line_figure([panel(ours, Series("other", {10: Summary(70, None, 1)}), Series("none", {}))])
    assert texts(text, "title") == [
        "K 0\nours: \u22120.25 (n = 1)",
        "K 10\nours: 80 ± 10 (n = 3), paper 90\nother: 70 (n = 1)",
    ]
    first, last = [group.find(SVG + "rect") for group in elements(text, "g") if group.get("class") == "stop tip"]
    assert first is not None
    assert last is not None
    # Each point owns its half of the plot and a margin outside it.
    middle = percent(first, "x") + percent(first, "width")
    assert middle == percent(last, "x") == 50
    assert percent(first, "x") < 0
    assert percent(last, "x") + percent(last, "width") > 100


def test_a_single_point_can_be_pointed_at() -> None:
    (rect,) = elements(line_figure([panel(Series("a", {3: Summary(1, None, 1)}))]), "rect")
    assert percent(rect, "width") > 100


def test_zero_is_one_power_of_ten_left_on_a_logarithmic_axis() -> None:
    values = {x: Summary(x, None, 1) for x in (0, 0.001, 0.01, 0.1, 1, 10)}
    (line,) = points(line_figure([panel(Series("a", values), logarithmic=True)]), "polyline", "curve")[:1]
    assert [x for x, _ in line] == [WIDTH * place / 5 for place in range(6)]


def test_a_label_has_one_colour_and_one_kind_of_dashes_in_every_panel() -> None:
    one = {1.0: Summary(1, None, 1), 2.0: Summary(2, None, 1)}
    text = line_figure([panel(Series("a", one), Series("b", one)), panel(Series("b", one))])
    groups = [name for group in elements(text, "g") if (name := group.get("class", "")).startswith("c")]
    assert groups == ["c0 d0", "c1 d1", "c1 d1", "c0 d0", "c1 d1"]  # the last two are the legend
    assert [name for name in texts(text) if name in {"a", "b"}] == ["a", "b"]
    assert "the paper" not in text


def test_a_caption_explains_the_signs_that_occur_and_no_others() -> None:
    """A method's own line may be dotted, so a figure without the paper's values does not explain dotted lines."""
    spread, single = {1.0: Summary(1, 0.5, 3)}, {1.0: Summary(1, None, 1)}
    rings = "rings on thin dotted lines are the paper's"
    assert explained_caption("What", [panel(Series("a", single), Series("b", single))]) == "What."
    assert explained_caption("What", [panel(Series("a", spread))]) == "What; bands are one deviation over seeds."
    assert explained_caption("What", [panel(Series("a", single, paper={1.0: 2.0}))]) == f"What; {rings}."
    both = [panel(Series("a", single)), panel(Series("a", spread, paper={1.0: 2.0}))]
    assert explained_caption("What", both) == f"What; bands are one deviation over seeds, {rings}."
    *_, legend = [one for one in elements(line_figure(both), "circle") if one.get("class") == "ring"]
    assert legend.get("cx") == "11"  # within the sample of the legend, next to "the paper"


def test_a_level_is_within_the_plot() -> None:
    text = line_figure([panel(Series("a", {1: Summary(80, None, 1), 2: Summary(90, None, 1)}), level=("chance", 50))])
    (level,) = [line for line in elements(text, "line") if line.get("class") == "level"]
    assert 0 <= percent(level, "y1") <= 100
    assert "chance" in texts(text)


def test_a_heat_map_shades_by_value_and_leaves_gaps() -> None:
    text = heat_figure(grid("routing", ["dog", "cat"], ["1", "2"], [[0.25, None], [1.2, -0.5]]))
    shades = [one.get("fill-opacity") for one in elements(text, "rect") if one.get("class") == "cell"]
    assert shades == ["0.250", "1.000", "0.000"]
    assert texts(text, "title") == ["dog, 1: 0.25", "dog, 2: not measured", "cat, 1: 1.2", "cat, 2: \u22120.5"]
    assert texts(text)[-2:] == ["1.20", "\u22120.50"]


def test_names_are_escaped() -> None:
    name = '<script>"&'
    point = {1.0: Summary(1, None, 1)}
    for text in (line_figure([panel(Series(name, point))]), heat_figure(grid(name, [name], [name], [[0.5]]))):
        assert not elements(text, "script")
        assert name in texts(text)


def test_charts_that_cannot_be_drawn_are_refused() -> None:
    for series in ((), (Series("a", {-1: Summary(1, None, 1)}),)):
        with pytest.raises(MessiError, match="`series`"):
            line_figure([panel(*series)])
    with pytest.raises(MessiError, match="one of them above 0"):
        line_figure([panel(Series("a", {0: Summary(1, None, 1)}), logarithmic=True)])
    with pytest.raises(MessiError, match="not finite"):
        line_figure([panel(Series("a", {1: Summary(float("nan"), None, 1)}))])
    with pytest.raises(MessiError, match="needs 1 values in every row"):
        grid("t", ["a", "b"], ["c"], [[1.0], [1.0, 2.0]])


def test_a_line_that_ends_early_keeps_the_scale_of_the_longest() -> None:
    short, long = Series("short", {5: 1.0}), Series("long", {5: 0.0, 10: 2.0})
    chart = by_step(short, long, last=10).drawing
    assert [line.points[-1] for line in chart.lines] == [Point(50, 50), Point(100, 0)]
    assert chart.stops[1].text == "step 10\nlong: 2.0"


@pytest.mark.parametrize("value", [0.0, 1.0, -3.0, 1e-15, 100.0])
def test_a_constant_can_be_drawn(value: float) -> None:
    (line,) = by_step(Series("a", {1: value, 2: value}), last=2).drawing.lines
    assert all(0 <= point.y <= 100 for point in line.points)


def test_full_accuracy_has_no_tick_above_it() -> None:
    assert ticks(100, 100)[-1] == 100


def test_numbers_below_zero_have_a_minus_sign() -> None:
    chart = Chart(title="t", series=(Series("a", {1: -0.5, 2: 0.5}),), show=significant, last=2).drawing
    assert [tick.text for tick in chart.y_ticks] == ["\u22120.5", "0", "0.5"]
    assert chart.stops[0].text == "step 1\na: \u22120.5"
    assert significant(-0.00053925) == "\u22120.000539"
    assert significant(-1.5e-7) == "\u22121.5e-07"


def test_steps_have_whole_ticks() -> None:
    chart = by_step(Series("a", {1: 0.5, 3: 0.7}), last=3).drawing
    assert [tick.text for tick in chart.x_ticks] == ["0", "1", "2", "3"]


def test_a_deviation_is_drawn_inside_the_plot() -> None:
    chart = by_step(Series("a", {5: 1.0, 10: Summary(2.0, 1.0, 3)}), last=10).drawing
    assert [tick.text for tick in chart.y_ticks] == ["1", "1.5", "2", "2.5", "3"]
    assert chart.lines[0].band == (Point(50, 100), Point(100, 0), Point(100, 100), Point(50, 100))


@given(st.floats(-1e6, 1e6), st.floats(1e-9, 1e6))
def test_ticks_hold_the_range_in_equal_round_steps(low: float, span: float) -> None:
    high = low + span
    found = ticks(low, high)
    step = found[1] - found[0]
    slack = 1e-6 * step + 1e-9 * max(abs(low), abs(high))
    assert found[0] <= low + slack
    assert found[-1] >= high - slack
    assert 2 <= len(found) <= 7
    if step > 1e-6 * abs(high):
        leading = float(f"{step:.3g}") / 10 ** math.floor(math.log10(float(f"{step:.3g}")))
        assert round(leading, 6) in (1, 2, 5, 10)
