from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from messi.reports.page import write_report

from .documents import document
from .helpers import Sample


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    samples = [
        Sample(targets={"sketch": 0.625}, diagnostics=document(domains=("photo", "art", "clipart"), points=200)),
        Sample(algorithm="erm", experts=(), targets={"sketch": 0.7}, seed=1, diagnostics=document(experts=0)),
        Sample(algorithm="coral", experts=(), targets={"cartoon": 0.09}, seed=10),
    ]
    write_report([s.write(folder / s.algorithm) for s in samples], folder / "page.html")
    return folder / "page.html"


@pytest.fixture
def page(browser: Browser, file: Path) -> Iterator[Page]:
    context = browser.new_context(
        viewport={"width": 1280, "height": 900}, permissions=["clipboard-read", "clipboard-write"]
    )
    page = context.new_page()
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(file.as_uri())
    yield page
    assert problems == []
    context.close()


def first_column(page: Page) -> list[str]:
    return [text.strip() for text in page.locator("#runs tbody th").all_inner_texts()]


def test_a_click_on_a_head_sorts_and_another_reverses_the_order(page: Page) -> None:
    head = page.locator("#runs thead th", has_text="Target sketch")
    assert first_column(page) == ["messi", "erm", "coral"]
    head.get_by_role("button").click()
    expect(head).to_have_attribute("aria-sort", "descending")  # numbers start with the highest
    assert first_column(page) == ["erm", "messi", "coral"]
    head.get_by_role("button").click()
    expect(head).to_have_attribute("aria-sort", "ascending")
    assert first_column(page) == ["messi", "erm", "coral"]  # missing values stay last


def test_words_among_numbers_stay_last_in_both_directions(page: Page) -> None:
    page.locator("#runs tbody tr").last.locator("td").first.evaluate("cell => { cell.textContent = 'failed'; }")
    button = page.locator("#runs thead th", has_text="Target sketch").get_by_role("button")
    button.click()
    assert first_column(page) == ["erm", "messi", "coral"]
    button.click()
    assert first_column(page) == ["messi", "erm", "coral"]


def test_the_keyboard_sorts_and_numbers_are_not_texts(page: Page) -> None:
    page.locator("#runs thead th", has_text="Run").get_by_role("button").click()
    assert first_column(page) == ["coral", "erm", "messi"]
    seed = page.locator("#runs thead th", has_text="Seed")
    seed.get_by_role("button").focus()
    page.keyboard.press("Enter")
    assert first_column(page) == ["coral", "erm", "messi"]  # 10, 1, 0
    page.keyboard.press("Space")
    assert first_column(page) == ["messi", "erm", "coral"]
    assert page.locator("#runs [aria-sort]").count() == 1


def test_pointing_shows_the_values_and_leaving_hides_them(page: Page) -> None:
    box = page.locator(".tipbox")
    expect(box).to_be_hidden()
    page.locator("#curves .wide .stop").nth(1).hover()
    expect(box).to_have_text("step 20\nmessi: 85.0 %\nerm: 85.0 %\ncoral: 85.0 %")
    page.locator("h2").first.hover()
    expect(box).to_be_hidden()
    assert page.locator(".tip > title, .tip[title]").count() == 0  # otherwise the browser would show a second box


def test_the_box_stays_in_the_window(page: Page) -> None:
    page.locator("#curves .wide .stop").last.hover()
    assert page.locator(".tipbox").evaluate("box => box.getBoundingClientRect().right <= innerWidth")


def test_the_keyboard_walks_through_a_chart_that_is_one_stop(page: Page) -> None:
    plot = page.locator("#curves .wide .plot")
    assert plot.locator("[tabindex='0']").count() == 1
    plot.locator("[tabindex='0']").focus()
    expect(page.locator(".tipbox")).to_contain_text("step 10")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".tipbox")).to_contain_text("step 20")
    page.keyboard.press("Escape")
    expect(page.locator(".tipbox")).to_be_hidden()
    page.keyboard.press("Tab")
    assert plot.evaluate("plot => !plot.contains(document.activeElement)")


def test_arrows_go_down_a_column_of_the_slot_matrix(page: Page) -> None:
    cells = page.locator(".slots td")
    cells.first.focus()
    expect(page.locator(".tipbox")).to_contain_text("cat: photo and art")
    page.keyboard.press("ArrowDown")
    expect(page.locator(".tipbox")).to_contain_text("dog: photo and art")
    expect(page.locator(".tipbox")).to_contain_text("one of the domains lacks this class")


def test_a_touch_shows_the_value(browser: Browser, file: Path) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    page = context.new_page()
    page.goto(file.as_uri())
    page.locator("#calibration .bubble").last.tap()
    expect(page.locator(".tipbox")).to_contain_text("confidence")
    page.locator("#calibration h2").tap()
    expect(page.locator(".tipbox")).to_be_hidden()
    context.close()


COLOUR = "mark => getComputedStyle(mark.querySelector('circle')).fill"


@pytest.mark.parametrize("scripted", [True, False])
def test_the_switch_recolours_the_embedding(browser: Browser, file: Path, scripted: bool) -> None:
    context = browser.new_context(java_script_enabled=scripted)
    page = context.new_page()
    page.goto(file.as_uri())
    plots = page.locator(".embedding").first
    expect(plots.locator(".keys.domain")).to_be_visible()
    expect(plots.locator(".keys.class")).to_be_hidden()
    marks = plots.locator(".plane").first.locator("g")
    classes = [
        (text or "").split() for text in marks.evaluate_all("all => all.map(mark => mark.getAttribute('class'))")
    ]
    colours = {}
    for way in ("domain", "class", "expert"):
        plots.get_by_role("radio", name=way).check()
        found = marks.evaluate_all(f"all => all.map({COLOUR})")
        legend = plots.locator(f".keys.{way} .dotkey").evaluate_all(f"all => all.map({COLOUR})")
        looks = [next(int(name[1:]) for name in names if name[0] == way[0] and name[1:].isdigit()) for names in classes]
        assert found == [legend[look] for look in looks]
        assert len(set(legend)) == {"domain": 4, "class": 2, "expert": 3}[way]
        colours[way] = found
    assert len({tuple(found) for found in colours.values()}) == 3
    context.close()


def test_the_legend_picks_out_its_points(page: Page) -> None:
    plots = page.locator(".embedding").first
    key = plots.locator(".keys.domain li").first
    count = int(key.locator(".quiet").inner_text())
    key.focus()
    faint = plots.locator(".plane").first.locator("g:not(.lit) circle").count()
    assert faint == 200 - count
    assert float(plots.locator("g.tip:not(.lit)").first.evaluate("mark => getComputedStyle(mark).opacity")) < 0.2


def test_the_command_is_copied(page: Page) -> None:
    block = page.locator("#settings .code").first
    block.get_by_role("button", name="Copy").click()
    expect(block.get_by_role("button")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == block.locator("pre").inner_text()


def test_printing_unfolds_everything(page: Page) -> None:
    assert page.locator("details:not([open])").count() > 0
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0


def test_without_script_there_are_native_titles_and_no_dead_buttons(browser: Browser, file: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(file.as_uri())
    assert page.locator(".stop title").count() > 0
    assert page.locator(".slots td[title]").count() > 0
    assert page.get_by_role("button").count() == 0
    context.close()


def test_light_and_dark_look_different(browser: Browser, file: Path) -> None:
    pictures = set()
    for scheme in ("light", "dark"):
        context = browser.new_context(color_scheme="light" if scheme == "light" else "dark")
        page = context.new_page()
        page.goto(file.as_uri())
        pictures.add(page.locator("#embedding").screenshot())
        context.close()
    assert len(pictures) == 2
