"""The fenced blocks of a page, and how a test runs them.

``console`` blocks run line by line, ``python`` blocks share one namespace, and a block with a title is saved under it.
``<!-- not run: why -->`` above a block skips it. ``<!-- needs: photos -->`` makes the folder of the start page first.
"""

import re
import runpy
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from messi.cli.main import main

DOCS = Path(__file__).parents[2] / "docs"
_BLOCK = re.compile(
    r'(?P<skip><!-- not run: \S[^\n]* -->\n)?^```(?P<language>console|python)(?: title="(?P<title>[^"]+)")?\n'
    r"(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    language: str
    title: str | None
    code: str
    runs: bool


def blocks(page: Path) -> list[Block]:
    """Return the console and Python blocks of a page in order."""
    return [
        Block(match["language"], match["title"], match["code"], runs=not match["skip"])
        for match in _BLOCK.finditer(page.read_text())
    ]


def run_page(page: Path) -> None:
    """Run a page in the current folder."""
    if "<!-- needs: photos -->" in page.read_text():
        script = next(block for block in blocks(DOCS / "start.md") if block.title == "make_photos.py")
        exec(compile(script.code, "make_photos.py", "exec"), {})  # noqa: S102 (our own page)
    names: dict[str, Any] = {}
    for block in blocks(page):
        if not block.runs:
            continue
        if block.title:
            Path(block.title).write_text(block.code)
        elif block.language == "python":
            exec(compile(block.code, str(page), "exec"), names)  # noqa: S102
        else:
            for command in _commands(block.code):
                _run(command)


def _commands(code: str) -> list[str]:
    joined = code.replace("\\\n", " ")
    return [line.removeprefix("$ ") for line in joined.splitlines() if line.startswith("$ ")]


def _run(command: str) -> None:
    words = shlex.split(command, comments=True)
    if words[0] == "messi":
        assert main(words[1:]) == 0, command
    elif words[0] == "python":
        runpy.run_path(words[1], run_name="__main__")
    else:
        subprocess.run(words, check=True)
