from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page

from messi.core.records import RoutingRecord
from messi.reports.page import write_report
from messi.reports.runs import read_run

from .documents import document
from .helpers import HOSTILE_ATTRIBUTE, HOSTILE_TAG, Sample

# The contrast of text with its background by the formula of WCAG, including transparency.
CONTRAST = """element => {
  const parse = text => (text.match(/[\\d.]+/g) || []).map(Number);
  let behind = [255, 255, 255];
  const chain = [];
  for (let e = element; e; e = e.parentElement) chain.unshift(e);
  for (const e of chain) {
    const [r, g, b, a = 1] = parse(getComputedStyle(e).backgroundColor);
    behind = [r, g, b].map((value, i) => a * value + (1 - a) * behind[i]);
  }
  const light = rgb => rgb.map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const [low, high] = [light(parse(getComputedStyle(element).color).slice(0, 3)), light(behind)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}"""


@dataclass
class View:
    """A page in a browser, with its console messages and requests."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def open(self, file: Path) -> Page:
        self.page.goto(file.as_uri())
        return self.page


@pytest.fixture(params=[(1280, 900), (360, 740)], ids=["desktop", "phone"])
def size(request: pytest.FixtureRequest) -> tuple[int, int]:
    pixels: tuple[int, int] = request.param
    return pixels


@pytest.fixture(params=["light", "dark"])
def scheme(request: pytest.FixtureRequest) -> Literal["light", "dark"]:
    name: Literal["light", "dark"] = request.param
    return name


@pytest.fixture
def view(browser: Browser, size: tuple[int, int], scheme: Literal["light", "dark"]) -> Iterator[View]:
    context = browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
    yield View(context.new_page())
    context.close()


def report(tmp_path: Path, *samples: Sample) -> tuple[Path, list[Path]]:
    paths = [sample.write(tmp_path / f"run{place}") for place, sample in enumerate(samples)]
    write_report(paths, tmp_path / "page.html")
    return tmp_path / "page.html", paths


def assert_no_sideways_scrolling(page: Page) -> None:
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_page_opens_without_messages_or_requests(tmp_path: Path, view: View, scheme: str) -> None:
    file, _ = report(tmp_path, Sample(diagnostics=document()), Sample(algorithm="erm", experts=()))
    page = view.open(file)
    page.wait_for_load_state("networkidle")
    assert view.complaints == []
    assert [url for url in view.requests if not url.startswith("data:")] == [file.as_uri()]
    assert_no_sideways_scrolling(page)
    widths = page.eval_on_selector_all("img", "images => images.map(image => image.naturalWidth)")
    assert widths == [56] * 12 + [8] * 3  # two pictures of each of three experts and domains, three examples
    background = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    assert (sum(background) > 382) == (scheme == "light")


def test_the_heat_map_shows_the_records(tmp_path: Path, view: View) -> None:
    file, (path,) = report(tmp_path, Sample(experts=(0.004, 0.996)))
    page = view.open(file)
    records = read_run(path).of_kind(RoutingRecord)
    targets_first = sorted(records, key=lambda record: record.role != "target")
    rows = page.locator(".heat").last.locator("tbody tr:not(.group)").all()
    shown = [row.locator("th, td").all_inner_texts() for row in rows]
    assert shown == [[r.label, str(r.count), *(f"{w:.2f}" for w in r.experts)] for r in targets_first]
    groups = page.locator(".heat .group").all_inner_texts()
    assert [group.split() for group in groups] == [
        ["sketch", "target,", "unseen"],
        ["photo", "source,", "validation", "part"],
        ["art", "source,", "validation", "part"],
    ]
    assert all(cell.is_visible() for cell in page.locator(".heat .cell").all())
    contrasts = page.locator(".heat .cell").evaluate_all(f"all => all.map({CONTRAST})")
    assert len(contrasts) == 3 * 2 + 6 * 2  # three domains, and two classes of each; two experts
    assert min(contrasts) >= 4.5


def test_all_text_can_be_read(tmp_path: Path, view: View) -> None:
    others = Sample(algorithm="erm", experts=(), fingerprint="beef", diagnostics=document(experts=0))
    file, _ = report(tmp_path, Sample(diagnostics=document(experts=9)), others)
    page = view.open(file)
    page.locator("details").evaluate_all("all => all.forEach(part => { part.open = true; })")
    text = page.locator("p, th, td, h1, h2, h3, h4, a, dt, dd, li, label, button, summary, span, pre")
    faint = text.evaluate_all(f"all => all.filter(e => ({CONTRAST})(e) < 4.5).map(e => e.innerText)")
    assert text.count() > 100
    assert faint == []


def test_examples_mark_right_and_wrong(tmp_path: Path, view: View) -> None:
    file, _ = report(tmp_path, Sample())
    cards = view.open(file).locator(".card").all_inner_texts()
    assert [card.split() for card in cards] == [
        ["label", "cat", "✗", "dog", "75.3", "%"],  # the target, which comes first
        ["label", "cat", "✓", "cat", "75.3", "%"],
        ["label", "cat", "✓", "cat", "75.3", "%"],
    ]
    heights = view.page.locator(".card").first.locator(".bars i").evaluate_all("all => all.map(i => i.clientHeight)")
    assert heights[1] > heights[2] > heights[0] > 0


def test_the_ring_marks_the_selected_step(tmp_path: Path, view: View) -> None:
    file, _ = report(tmp_path, Sample())
    page = view.open(file)
    plot = page.locator("#curves .wide .plot").bounding_box()
    ring = page.locator("#curves .wide .selected").bounding_box()
    assert plot is not None
    assert ring is not None
    # Step 20 of 30; 85 % on an axis whose ticks the page itself shows.
    assert ring["x"] + ring["width"] / 2 == pytest.approx(plot["x"] + plot["width"] * 2 / 3, abs=0.6)
    ticks = page.locator("#curves .wide .plot .y")
    low, high = float(ticks.first.text_content() or ""), float(ticks.last.text_content() or "")
    share = (high - 85) / (high - low)
    assert ring["y"] + ring["height"] / 2 == pytest.approx(plot["y"] + plot["height"] * share, abs=0.6)
    dots = page.locator("#curves .wide .dot").all()
    assert len(dots) == 3
    assert all(dot.is_visible() for dot in dots)


def test_names_are_shown_unchanged(tmp_path: Path, view: View) -> None:
    sample = Sample(
        algorithm=f"messi {HOSTILE_TAG}",
        sources={HOSTILE_TAG: (0.1, 0.2, 0.1), "photo": (0.1, 0.2, 0.1)},
        targets={HOSTILE_ATTRIBUTE: 0.5},
        classes=(HOSTILE_ATTRIBUTE, HOSTILE_TAG),
        diagnostics=document(
            domains=(HOSTILE_TAG, "photo"), targets=(HOSTILE_ATTRIBUTE,), classes=(HOSTILE_ATTRIBUTE, HOSTILE_TAG)
        ),
    )
    file, _ = report(tmp_path, sample, sample)
    page = view.open(file)
    assert view.complaints == []
    assert page.locator("script").count() == 1
    assert page.locator("[onload]").count() == 0
    assert page.locator(".slots tbody th").all_inner_texts()[:2] == [HOSTILE_ATTRIBUTE, HOSTILE_TAG]
    assert HOSTILE_TAG in page.locator("h1").inner_text()
    assert HOSTILE_TAG in (page.locator(".stop").first.get_attribute("data-tip") or "")
    page.locator(".slot").first.hover()
    assert HOSTILE_TAG in page.locator(".tipbox").inner_text()
    assert page.locator(".truth").first.inner_text() == f"label {HOSTILE_ATTRIBUTE}"
    assert HOSTILE_ATTRIBUTE in (page.locator("img").first.get_attribute("alt") or "")


def test_long_names_and_many_runs_scroll_in_their_own_boxes(tmp_path: Path, view: View) -> None:
    long = "x" * 120
    samples = [
        Sample(
            algorithm=f"method{number}{long}",
            sources={f"photo{long}": (0.1, 0.2, 0.1), "art": (0.1, 0.2, 0.1)},
            targets={f"sketch{number}{long}": 0.4, "cartoon": 0.3},
            classes=(f"cat{long}", "dog"),
            experts=(1 / 24,) * 24,
            settings={long: long},
            diagnostics=document(
                domains=(f"photo{long}", "art"), targets=(f"sketch{long}",), classes=(f"cat{long}", "dog"), experts=24
            ),
        )
        for number in range(7)
    ]
    file, _ = report(tmp_path, *samples)
    page = view.open(file)
    page.locator("details").evaluate_all("all => all.forEach(part => { part.open = true; })")
    assert_no_sideways_scrolling(page)
    results = view.page.locator(".scroll").first
    assert results.evaluate("box => box.scrollWidth > box.clientWidth")
