"""Counts the results of the mutations over all test processes, and prints them at the end."""

import os
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

_found: list[dict[str, Any]] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Collect the result of a mutation from its test."""
    if report.when == "call":
        _found.extend(value for name, value in report.user_properties if name == "mutation")  # type: ignore[misc]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the counts, and write all failures to $MESSI_MUTATION_REPORT."""
    if not _found:
        return
    line = _counted()
    terminalreporter.write_line(line)
    if path := os.environ.get("MESSI_MUTATION_REPORT"):
        Path(path).write_text(f"{line}\n\n{_grouped()}")


def _counted() -> str:
    ends = Counter(one["end"] for one in _found)
    calls = sum(one["calls"] for one in _found)
    return (
        f"trust: {len(_found):,} mutations (seed {_found[0]['seed']}), {calls:,} calls: {ends['refused']:,} refused "
        f"with one sentence, {ends['same']:,} gave the undamaged answer, {ends['different']:,} forgeries another one, "
        f"{ends['failed']:,} failed"
    )


def _grouped() -> str:
    """Return the failures in Markdown, grouped."""
    groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for one in _found:
        for call, what, where, detail in one["failures"]:
            groups[what, where, one["file"], call].append(f"- {one['number']}: {one['kind']}: {detail[:200]}")
    totals: Counter[str] = Counter()
    for (what, *_), stories in groups.items():
        totals[what] += len(stories)
    lines = [f"{number:5} {what}" for what, number in totals.most_common()]
    for key, stories in sorted(groups.items(), key=lambda group: -len(group[1])):
        lines += ["", f"## {len(stories)} x {' | '.join(key)}", *stories[:6]]
    return "\n".join(lines) + "\n"
