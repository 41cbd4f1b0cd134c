import re
import xml.etree.ElementTree as ET

import pytest

from messi.core.errors import MessiError
from messi.reports.plots import HEIGHT, WIDTH, Curve, Panel, heat_map, line_figure, with_signs
from messi.reports.statistics import Summary

SVG = "{http://www.w3.org/2000/svg}"


def panel(*curves: Curve, logarithmic: bool = False, level: tuple[str, float] | None = None) -> Panel:
    return Panel(title="Accuracy", x_label="K", curves=curves, logarithmic=logarithmic, level=level)


def points(text: str, tag: str, kind: str) -> list[list[tuple[float, float]]]:
    found = [one.get("points", "") for one in elements(text, tag) if one.get("class") == kind]
    return [[(float(x), float(y)) for x, y in re.findall(r"([-\d.]+),([-\d.]+)", value)] for value in found]


def elements(text: str, tag: str) -> list[ET.Element]:
    return list(ET.fromstring(text).iter(SVG + tag))  # noqa: S314 - our own text


def texts(text: str, tag: str = "text") -> list[str]:
    return [one.text or "" for one in elements(text, tag)]


def test_places_of_a_line_and_its_band() -> None:
    curve = Curve("ours", {10: Summary(80, 10, 3), 0: Summary(60, None, 1), 5: Summary(70, 0, 3)}, {0: 50.0, 10: 90.0})
    text = line_figure([panel(curve)])
    # Values from 50 to 90: the axis has these ends.
    assert points(text, "polyline", "curve")[0] == [(0, 0.75 * HEIGHT), (WIDTH / 2, HEIGHT / 2), (WIDTH, HEIGHT / 4)]
    assert points(text, "polyline", "curve paper")[0] == [(0, HEIGHT), (WIDTH, 0)]
    half = (WIDTH / 2, HEIGHT / 2)
    start = (0, 0.75 * HEIGHT)
    assert points(text, "polygon", "band") == [[start, half, (WIDTH, 0), (WIDTH, HEIGHT / 2), half, start]]


def test_pointing_at_a_place_tells_the_values_of_all_curves_there() -> None:
    ours = Curve("ours", {0: Summary(-0.25, None, 1), 10: Summary(80, 10, 3)}, {10: 90.0})
    text = line_figure([panel(ours, Curve("other", {10: Summary(70, None, 1)}), Curve("none", {}))])
    assert texts(text, "title") == [
        "K 0\nours: \u22120.25 (n = 1)",
        "K 10\nours: 80 ± 10 (n = 3), paper 90\nother: 70 (n = 1)",
    ]
    first, last = [group.find(SVG + "rect") for group in elements(text, "g") if group.get("class") == "stop tip"]
    assert first is not None
    assert last is not None
    # Each place has its half of the plot and a margin beside it.
    middle = float(first.get("x", "")) + float(first.get("width", ""))
    assert middle == float(last.get("x", "")) == WIDTH / 2
    assert float(first.get("x", "")) < 0
    assert float(last.get("x", "")) + float(last.get("width", "")) > WIDTH


def test_one_place_alone_can_be_pointed_at() -> None:
    (rect,) = elements(line_figure([panel(Curve("a", {3: Summary(1, None, 1)}))]), "rect")
    assert float(rect.get("width", "")) > WIDTH


def test_zero_stands_one_power_of_ten_left_of_a_logarithmic_axis() -> None:
    values = {x: Summary(x, None, 1) for x in (0, 0.001, 0.01, 0.1, 1, 10)}
    (line,) = points(line_figure([panel(Curve("a", values), logarithmic=True)]), "polyline", "curve")[:1]
    assert [x for x, _ in line] == [WIDTH * place / 5 for place in range(6)]


def test_a_label_has_one_colour_and_one_kind_of_dashes_in_every_panel() -> None:
    one = {1.0: Summary(1, None, 1), 2.0: Summary(2, None, 1)}
    text = line_figure([panel(Curve("a", one), Curve("b", one)), panel(Curve("b", one))])
    groups = [name for group in elements(text, "g") if (name := group.get("class", "")).startswith("c")]
    assert groups == ["c0 d0", "c1 d1", "c1 d1", "c0 d0", "c1 d1"]  # the last two are the legend
    assert [name for name in texts(text) if name in {"a", "b"}] == ["a", "b"]
    assert "the paper" not in text


def test_a_caption_explains_the_signs_that_occur_and_no_others() -> None:
    """A method's own line may be dotted, so that of a figure without the paper's values nothing is said to be."""
    spread, single = {1.0: Summary(1, 0.5, 3)}, {1.0: Summary(1, None, 1)}
    rings = "rings on thin dotted lines are the paper's"
    assert with_signs("What", [panel(Curve("a", single), Curve("b", single))]) == "What."
    assert with_signs("What", [panel(Curve("a", spread))]) == "What; bands are one deviation over seeds."
    assert with_signs("What", [panel(Curve("a", single, {1.0: 2.0}))]) == f"What; {rings}."
    both = [panel(Curve("a", single)), panel(Curve("a", spread, {1.0: 2.0}))]
    assert with_signs("What", both) == f"What; bands are one deviation over seeds, {rings}."
    *_, legend = [one for one in elements(line_figure(both), "circle") if one.get("class") == "ring"]
    assert legend.get("cx") == "11"  # within the sample of the legend, beside "the paper"


def test_a_level_is_within_the_plot() -> None:
    text = line_figure([panel(Curve("a", {1: Summary(80, None, 1), 2: Summary(90, None, 1)}), level=("chance", 50))])
    (level,) = [line for line in elements(text, "line") if line.get("class") == "level"]
    assert 0 <= float(level.get("y1", "-1")) <= HEIGHT
    assert "chance" in texts(text)


def test_a_heat_map_shades_by_value_and_leaves_gaps() -> None:
    text = heat_map("routing", ["dog", "cat"], ["1", "2"], [[0.25, None], [1.2, -0.5]])
    shades = [one.get("fill-opacity") for one in elements(text, "rect") if one.get("class") == "cell"]
    assert shades == ["0.250", "1.000", "0.000"]
    assert texts(text, "title") == ["dog, 1: 0.25", "dog, 2: nothing measured", "cat, 1: 1.2", "cat, 2: \u22120.5"]
    assert texts(text)[-2:] == ["1.20", "\u22120.50"]


def test_names_are_escaped() -> None:
    name = '<script>"&'
    point = {1.0: Summary(1, None, 1)}
    for text in (line_figure([panel(Curve(name, point))]), heat_map(name, [name], [name], [[0.5]])):
        assert not elements(text, "script")
        assert name in texts(text)


def test_what_cannot_be_drawn_is_refused() -> None:
    for curves in ((), (Curve("a", {-1: Summary(1, None, 1)}),)):
        with pytest.raises(MessiError, match="`curves`"):
            line_figure([panel(*curves)])
    with pytest.raises(MessiError, match="one of them above 0"):
        line_figure([panel(Curve("a", {0: Summary(1, None, 1)}), logarithmic=True)])
    with pytest.raises(MessiError, match="not finite"):
        line_figure([panel(Curve("a", {1: Summary(float("nan"), None, 1)}))])
    with pytest.raises(MessiError, match="2 rows of 1"):
        heat_map("t", ["a", "b"], ["c"], [[1.0]])
