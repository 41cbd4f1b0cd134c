"""Tables and figures wider than the window, on a desktop and on a phone."""

import io
import itertools
import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Browser, Locator, Page, expect

from messi.reports.charts import Chart, HeatGroup, HeatMap, HeatRow, Series, heat_figure, line_figure
from messi.reports.page import write_report
from messi.reports.plan_page import Figure, PlanPage
from messi.reports.statistics import Summary
from messi.reports.table import Cell, Column, Row, Table

from .documents import document
from .helpers import Sample

DESK, LARGE, PHONE = (1280, 900), (1920, 1000), (390, 844)
BOX = "#runs"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the page of a run with six held-out domains."""
    folder = tmp_path_factory.mktemp("wide")
    targets = {f"art_painting{number}": 0.5 for number in range(6)}
    domains, targets_of = ("photo", "art_painting"), ("art_painting0",)
    found = document(domains=domains, targets=targets_of, experts=8)
    sample = Sample(sources=dict.fromkeys(domains, (0.5, 0.8, 0.7)), targets=targets, diagnostics=found)
    write_report([sample.write(folder / "run")], folder / "page.html")
    return folder / "page.html"


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the page of a plan with a figure of two panels and a heat map."""
    series = Series("ours", {3: Summary(50, None, 1), 5: Summary(60, None, 1)})
    charts = [Chart(title=title, x="K {}", series=(series,)) for title in ("one", "two")]
    rows = (HeatRow("dog", (0.1, None)), HeatRow("cat", (0.3, 0.4)))
    svgs = (line_figure(charts), heat_figure(HeatMap("map", "class", ("1", "2"), (HeatGroup(rows),))))
    runs = Table(
        name="all runs",
        heads=("method",),
        columns=(Column("target %"), Column("folder")),
        groups=((Row(("ERM",), (Cell(Summary(50, None, 1)), Cell(text="a" * 60))),),),
    )
    out = tmp_path_factory.mktemp("figures") / "page.html"
    sections = [Figure(f"figure{number}", "words", svg) for number, svg in enumerate(svgs)]
    plan = PlanPage(
        title="t",
        kicker="k",
        lead="c",
        facts={},
        sections=sections,
        runs=runs,
        command="messi " * 20,
        featured=(),
        methods=0,
    )
    plan.write(out)
    return out


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": DESK[0], "height": DESK[1]})
    yield context.new_page()
    context.close()


def opened(page: Page, file: Path, size: tuple[int, int]) -> Page:
    page.set_viewport_size({"width": size[0], "height": size[1]})
    page.goto(file.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    return page


def edge(box: Locator) -> tuple[int, ...]:
    """Return the colour of a box just inside of its right border, in the last row of its table."""
    picture = Image.open(io.BytesIO(box.screenshot())).convert("RGB")
    return picture.getpixel((picture.width - 4, picture.height - 8))  # type: ignore[return-value]


def test_a_shadow_marks_hidden_content(page: Page, file: Path) -> None:
    table = opened(page, file, DESK).locator(BOX)
    box = page.locator(".scroll", has=table)
    assert box.evaluate("box => box.scrollWidth > box.clientWidth")
    assert max(edge(box)) < 240
    box.evaluate("box => { box.scrollLeft = box.scrollWidth; }")
    assert edge(box) == (255, 255, 255)


def test_the_first_column_stays_and_a_large_window_shows_more(page: Page, file: Path) -> None:
    table = opened(page, file, DESK).locator(BOX)
    box = page.locator(".scroll", has=table)
    firsts = table.locator("tr > :first-child")
    places = firsts.evaluate_all("all => all.map(cell => cell.getBoundingClientRect().left)")
    box.evaluate("box => { box.scrollLeft = 300; }")
    assert firsts.evaluate_all("all => all.map(cell => cell.getBoundingClientRect().left)") == places
    width = box.evaluate("box => box.clientWidth")
    opened(page, file, LARGE)
    assert box.evaluate("box => box.clientWidth") > width + 300
    assert page.locator("#results .caption").first.evaluate("text => text.clientWidth") <= 46 * 16


def test_words_stay_whole_on_a_phone(page: Page, file: Path) -> None:
    opened(page, file, PHONE)
    lines = """cell => {
      const range = document.createRange();
      range.selectNodeContents(cell);
      return new Set([...range.getClientRects()].map(line => Math.round(line.top))).size;
    }"""
    cells = page.locator("#domains tbody th", has_text="art_painting").all()
    assert len(cells) == 7
    assert {cell.evaluate(lines) for cell in cells} == {1}


def test_the_copy_button_covers_nothing(page: Page, figures: Path) -> None:
    opened(page, figures, PHONE)
    code, button = page.locator("pre.copy").bounding_box(), page.locator(".copier").bounding_box()
    assert code is not None
    assert button is not None
    assert button["y"] >= code["y"] + code["height"]


def test_a_figure_keeps_its_size_on_a_phone_and_scrolls_above_its_caption(page: Page, figures: Path) -> None:
    opened(page, figures, PHONE)
    figure = page.locator("figure.scroll").first
    assert figure.locator("svg.figure").evaluate("svg => svg.getBoundingClientRect().width") >= 800
    caption = figure.locator("figcaption")
    left = caption.evaluate("text => text.getBoundingClientRect().left")
    figure.evaluate("box => { box.scrollLeft = 400; }")
    assert caption.evaluate("text => text.getBoundingClientRect().left") == left


def test_figures_of_a_plan_are_read_by_pointing_and_by_the_keyboard(page: Page, figures: Path) -> None:
    opened(page, figures, DESK)
    box = page.locator(".tipbox")
    lines, grid = page.locator("svg.figure").all()
    lines.locator(".stop").nth(1).hover()
    expect(box).to_have_text("K 5\nours: 60 (n = 1)")
    assert lines.locator("[tabindex='0']").count() == 1
    lines.locator("[tabindex='0']").focus()
    expect(box).to_contain_text("K 3")
    page.keyboard.press("ArrowRight")
    expect(box).to_contain_text("K 5")
    grid.locator("[tabindex='0']").focus()
    page.keyboard.press("ArrowDown")
    expect(box).to_have_text("cat, 1: 0.3")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowRight")
    expect(box).to_have_text("dog, 2: not measured")


def lab(rgb: tuple[float, ...]) -> tuple[float, float, float]:
    """Return a colour in CIE Lab, in which distances are perceptual."""
    r, g, b = (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in (value / 255 for value in rgb))
    xyz = (
        (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505,
        0.2126 * r + 0.7152 * g + 0.0722 * b,
        (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089,
    )
    x, y, z = (v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("strength", [0, 1])
def test_experts_have_distinct_colours_at_every_strength(page: Page, file: Path, scheme: str, strength: int) -> None:
    page.emulate_media(color_scheme="light" if scheme == "light" else "dark")
    opened(page, file, DESK)
    cell = page.locator(".slot").first
    surface = (255.0,) * 3 if scheme == "light" else (28.0, 31.0, 35.0)
    colours = []
    for expert in range(8):
        cell.evaluate(f"cell => {{ cell.style = '--v:{strength};--k:var(--k{expert})'; }}")
        *rgb, alpha = cell.evaluate("cell => getComputedStyle(cell).backgroundColor.match(/[\\d.]+/g).map(Number)")
        colours.append(lab(tuple(alpha * own + (1 - alpha) * below for own, below in zip(rgb, surface, strict=True))))
    distances = [math.dist(x, y) for x, y in itertools.combinations(colours, 2)]
    # Adjacent colours differ visibly from a distance of about 2; these are not adjacent.
    assert min(distances) > 10
