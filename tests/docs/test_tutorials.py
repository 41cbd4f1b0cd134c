"""The commands of the start page, of every tutorial and of some other pages work as they are printed."""

from pathlib import Path

import pytest
from sklearn import config_context

from .blocks import DOCS, blocks, run_page

PAGES = [
    DOCS / "start.md",
    *sorted((DOCS / "tutorials").glob("*.md")),
    DOCS / "algorithms" / "diwa.md",
    DOCS / "recipes.md",
    DOCS / "export.md",
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "reader"
    folder.mkdir()
    monkeypatch.chdir(folder)
    with config_context():  # restores scikit-learn's settings
        run_page(page)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_has_blocks_that_run_and_all_blocks_are_found(page: Path) -> None:
    found = blocks(page)
    fences = [line for line in page.read_text().splitlines() if line.startswith(("```console", "```python"))]
    assert len(found) == len(fences)
    assert any(block.runs for block in found)
