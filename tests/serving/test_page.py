"""The pages in a real browser: drop an image or paste a row, and read class, experts, domain and warning."""

import base64
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, Page

from messi.evaluation.model import load
from messi.serving.known_domains import known_domains
from messi.serving.limits import Limits
from messi.serving.predictor import Predictor
from messi.serving.service import make_app

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


def test_a_pasted_row_is_classified(page: Page, tmp_path: Path) -> None:
    from tests.command import messi  # noqa: PLC0415

    rng = np.random.default_rng(0)
    labels, domains = np.arange(120) % 2, np.arange(120) % 3
    inputs = rng.normal(size=(120, 4)).astype(np.float32) + 3 * labels[:, None]
    np.savez(tmp_path / "data.npz", inputs=inputs, labels=labels, domains=domains)
    options = ("--target", "2", "--steps", "30", "--evaluate-every", "15", "--device", "cpu", "--out", "run")
    assert messi("train", "--data", tmp_path / "data.npz", *options, cwd=tmp_path).returncode == 0
    model = load(tmp_path / "run")
    app = make_app(Predictor(model, known_domains(tmp_path / "run", model)), Limits())
    with serving_here(app) as url:
        page.goto(url)
        page.get_by_label("Paste rows of 4 numbers").fill("3,3,3,3\n0,0,0,0\n")
        page.get_by_role("button", name="Classify").click()
        page.locator(".result").nth(1).wait_for()
        said = [text.split() for text in page.locator(".said-class").all_inner_texts()]
        assert said == [["Row", "1:", "1"], ["Row", "2:", "0"]]
        page.get_by_label("Paste rows of 4 numbers").fill("1,2,x,4")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.locator(".failed").wait_for()
        assert (
            page.locator(".failed").inner_text().startswith("'x' in row 1 of the request, column '2' is not a number")
        )
