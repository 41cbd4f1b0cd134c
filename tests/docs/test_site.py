"""The site builds strictly, has no broken link, and works from the file system at any width."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pytest

import messi
from messi.algorithms.common.base import ALGORITHMS
from messi.cli.main import COMMANDS

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class Links(HTMLParser):
    """What a page refers to, and the anchors that it offers."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.anchors |= {value for key in ("id", "name") if (value := values.get(key))}
        if link := values.get("href") if tag in ("a", "link") else None:
            self.links.append(link)
        if source := values.get("src"):
            self.links.append(source)
        if (tag == "link" and values.get("rel") == "stylesheet") or tag in ("script", "img", "iframe"):
            self.loaded.append(values.get("href") or values.get("src") or "")


def own_pages(site: Path) -> list[Path]:
    """Return the pages of the site, without the reports of runs that it carries and the page for a server's errors."""
    return [page for page in sorted(site.rglob("*.html")) if page.name not in ("report.html", "404.html")]


def test_every_link_leads_to_a_file_and_an_anchor(site: Path) -> None:
    pages = {page: Links(page) for page in own_pages(site)}
    assert sum(len(found.links) for found in pages.values()) > len(pages) > 20
    broken = []
    for page, found in pages.items():
        for link in found.links:
            if link.startswith(("https:", "http:", "data:", "mailto:", "javascript:")):
                continue
            path, _, anchor = unquote(link).partition("#")
            leads_to = (page.parent / path.partition("?")[0]).resolve() if path else page
            if not leads_to.is_file():
                broken.append(f"{page.relative_to(site)}: {link}")
            elif anchor and leads_to in pages and anchor not in pages[leads_to].anchors:
                broken.append(f"{page.relative_to(site)}: {link} (no such anchor)")
    assert not broken, "\n".join(broken)


def test_nothing_is_loaded_from_the_network(site: Path) -> None:
    loaded = {source for page in own_pages(site) for source in Links(page).loaded}
    assert loaded
    assert not [source for source in loaded if source.startswith(("http:", "https:", "//"))]


def test_the_reference_is_complete(site: Path) -> None:
    python = Links(site / "reference" / "python.html").anchors
    assert not [name for name in messi.__all__ if not any(anchor.endswith(f".{name}") for anchor in python)]
    command_line = (site / "reference" / "command_line.html").read_text()
    assert not [name for name in COMMANDS if f'id="messi-{name}"' not in command_line]
    assert not [name for name in ALGORITHMS.names() if not (site / "algorithms" / f"{name}.html").exists()]


def test_no_page_is_wider_than_a_phone(site: Path, browser: "Browser") -> None:
    page = browser.new_page(viewport={"width": 390, "height": 800})
    wide = []
    source = sorted((site / "source").rglob("*.html"))
    for path in [page for page in own_pages(site) if page not in source[1:]]:  # all pages of source code are alike
        page.goto(path.as_uri())
        if page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"):
            wide.append(str(path.relative_to(site)))
    page.close()
    assert not wide


def test_search_and_dark_mode_work_from_the_file_system(site: Path, browser: "Browser") -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 800}, color_scheme="light")
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto((site / "index.html").as_uri())
    body = page.locator("body")
    assert body.get_attribute("data-md-color-scheme") == "default"
    page.locator("label[title='Switch to dark mode']").click()
    assert body.get_attribute("data-md-color-scheme") == "slate"
    page.locator(".md-search__input").fill("checksum")
    page.locator(".md-search-result__item").first.wait_for(timeout=20_000)
    assert not [url for url in requests if url.startswith("http")]
    page.close()


def test_the_numbers_in_the_readme_are_in_the_files_they_link_to() -> None:
    rows = re.findall(
        r"^\| [^|]+ \| ([\d. ±]+)[ xs]* \| \[[^]]+\]\(([^)]+)\) \|$", (ROOT / "README.md").read_text(), re.MULTILINE
    )
    assert len(rows) == 4
    for number, source in rows:
        assert number.strip() in (ROOT / source).read_text()


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_of_the_repository_lead_to_files(name: str) -> None:
    links = re.findall(r"\]\((?!\w+:|#)([^)#]+)", (ROOT / name).read_text())
    assert not [link for link in links if not (ROOT / link).exists()]
