"""Counts what became of the mutations and tells it at the end."""

import json
import os
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from .mutations import SEED

COUNTS = pytest.StashKey[Counter[str]]()
FAILURES = pytest.StashKey[list[dict[str, Any]]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[COUNTS] = Counter()
    config.stash[FAILURES] = []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    counts = config.stash[COUNTS]
    if not counts["mutations"]:
        return
    terminalreporter.write_line(
        f"trust: {counts['mutations']} mutations (seed {SEED}), {counts['calls']} calls: {counts['refused']} "
        f"mutations refused with one sentence, {counts['same']} gave the undamaged answer, "
        f"{counts['different']} forgeries another one, {counts['failed']} failed"
    )
    if path := os.environ.get("MESSI_MUTATION_REPORT"):
        Path(path).write_text(grouped(config.stash[FAILURES], counts))


def grouped(failures: list[dict[str, Any]], counts: Counter[str]) -> str:
    """Return the failures as Markdown, alike ones together."""
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
    for failure in failures:
        groups[failure["what"], failure["where"], failure["file"], failure["call"]].append(failure)
    lines = [json.dumps(counts), ""]
    lines += [f"{number:5} {what}" for what, number in Counter(failure["what"] for failure in failures).most_common()]
    for key, found in sorted(groups.items(), key=lambda item: -len(item[1])):
        lines += ["", f"## {len(found)} x {' | '.join(key)}"]
        lines += [f"- {one['number']}: {one['kind']}: {one['detail'][:200]}" for one in found[:6]]
    return "\n".join(lines) + "\n"
