"""The pages in a real browser: drop an image or paste a row, and read class, experts, domain and warning."""

import base64
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Browser, Page

from messi.evaluation.model import load
from messi.serving.known_domains import known_domains
from messi.serving.limits import Limits
from messi.serving.predictor import Predictor
from messi.serving.service import make_app
from tests.command import messi

from .conftest import Served
from .server import serving_here

DROP = """([content, name]) => {
  const bytes = Uint8Array.from(atob(content), c => c.charCodeAt(0)), transfer = new DataTransfer();
  transfer.items.add(new File([bytes], name, {type: "image/png"}));
  document.dispatchEvent(new DragEvent("drop", {dataTransfer: transfer, bubbles: true, cancelable: true}));
}"""


@pytest.fixture(params=[(1280, 900, "light"), (360, 740, "dark")], ids=["desktop", "phone"])
def page(request: pytest.FixtureRequest, browser: Browser) -> Iterator[Page]:
    """Return a page that fails the test if it complains, or asks anybody but the service."""
    width, height, scheme = request.param
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    made = context.new_page()
    complaints: list[str] = []
    requests: list[str] = []
    made.on("console", lambda message: complaints.append(message.text))
    made.on("pageerror", lambda error: complaints.append(str(error)))
    made.on("request", lambda one: requests.append(one.url))
    yield made
    home = "/".join(made.url.split("/")[:3])
    assert {url for url in requests if not url.startswith((home, "data:", "blob:"))} == set()
    expected = ("the server responded with a status of 422",)  # Chromium reports every reply that is an error
    assert [text for text in complaints if not any(part in text for part in expected)] == []
    context.close()


def drop(page: Page, file: Path) -> None:
    page.evaluate(DROP, [base64.b64encode(file.read_bytes()).decode(), file.name])


def test_a_dropped_image_shows_class_experts_and_nearest_domain(images: Served, page: Page) -> None:
    page.goto(images.server.url)
    drop(page, images.image)
    page.locator(".said-class").wait_for()
    assert page.locator(".said-class").inner_text().strip() == load(images.run).predict([images.image]).labels[0]
    assert page.locator("meter").count() == 2 + 6
    assert "Active experts: " in page.locator("#results").inner_text()
    assert page.get_by_text("Nearest training domain: photo").is_visible()
    assert page.locator("#results img").evaluate("image => image.naturalWidth") == 32
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_an_image_unlike_the_training_domains_gets_a_clear_warning(images: Served, page: Page, tmp_path: Path) -> None:
    Image.effect_noise((40, 32), 120).convert("RGB").save(tmp_path / "noise.png")
    page.goto(images.server.url)
    page.locator("#file").set_input_files(tmp_path / "noise.png")
    page.get_by_role("alert").wait_for()
    assert "Unlike all training domains: do not rely on this class." in page.get_by_role("alert").inner_text()
    (tmp_path / "empty.png").write_bytes(b"")
    drop(page, tmp_path / "empty.png")
    page.locator(".failed").wait_for()
    assert page.locator(".failed").inner_text().startswith("The image cannot be read: it has 0 bytes.")
    assert page.locator(".warning").count() == 0  # that of the image before is gone
    (tmp_path / "large.png").write_bytes(b"x" * 1_000_001)
    page.locator("#file").set_input_files(tmp_path / "large.png")
    page.get_by_text("exceeds the limit of 1 MB").wait_for()


def test_the_page_can_be_used_by_keyboard_and_is_labelled(images: Served, page: Page) -> None:
    # Enabled before the page loads: if enabled just before the key press, the event was sometimes missed.
    page.on("filechooser", lambda _: None)
    page.goto(images.server.url)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "file"
    with page.expect_file_chooser():
        page.keyboard.press("Enter")
    assert page.get_by_label("Drop an image here").count() == 1
    assert page.locator("#results").get_attribute("aria-live") == "polite"
    background = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    dark = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    assert (sum(background) < 382) == dark


def test_the_api_page_works_without_a_network(images: Served, page: Page) -> None:
    page.goto(f"{images.server.url}docs")
    assert page.locator("h2 code").all_inner_texts() == ["POST /predict", "GET /health", "GET /model"]
    for link in page.locator("a[href^='#']").all():
        assert page.locator(link.get_attribute("href") or "").count() == 1
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.fixture(scope="session")
def table_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run on a table with a number that decides the class, and a category that does not."""
    root = tmp_path_factory.mktemp("table")
    rng = random.Random(0)  # noqa: S311
    lines = ["size,colour,kind,site"]
    for i in range(150):
        large = i % 2
        lines.append(
            f"{rng.gauss(10 * large, 1):.3f},{rng.choice(['red', 'blue'])},{'large' if large else 'small'},{i % 3}"
        )
    (root / "table.csv").write_text("\n".join(lines) + "\n")
    names = ("--data", str(root / "table.csv"), "--label", "kind", "--domain", "site", "--target", "2")
    options = ("--steps", "40", "--evaluate-every", "20", "--device", "cpu", "--out", "run")
    done = messi("train", *names, *options, cwd=root)
    assert done.returncode == 0, done.stderr
    return root / "run"


def test_a_pasted_row_is_classified(page: Page, table_run: Path) -> None:
    model = load(table_run)
    app = make_app(Predictor(model, known_domains(table_run, model)), Limits())
    with serving_here(app) as url:
        page.goto(url)
        box, send = page.locator("textarea"), page.get_by_role("button", name="Classify")
        assert box.input_value() == "size,colour\n"
        box.fill("colour,ignored,size\nred,x,10\nblue,,0\n")
        send.click()
        page.locator(".result").nth(1).wait_for()
        said = [text.split() for text in page.locator(".said-class").all_inner_texts()]
        assert said == [["Row", "1:", "large"], ["Row", "2:", "small"]]
        box.fill("size = 10, colour=mauve")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.locator(".note").wait_for()
        assert (
            "the category 'mauve' did not occur in training; known are: blue, red."
            in page.locator(".note").inner_text()
        )
        assert page.locator(".said-class").inner_text().strip() == "large"
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        for text, problem in (
            ("size\n1", "The feature 'colour' is missing in the request; its columns are: size."),
            ("size,colour\nbig,red", "'big' in row 1 of the request, column 'size' is not a number"),
        ):
            box.fill(text)
            send.click()
            page.get_by_text(problem).wait_for()
