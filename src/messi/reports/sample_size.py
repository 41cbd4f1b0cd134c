"""How many examples a measure of ``diagnostics.json`` saw, which looks at a part where there are very many."""

from collections.abc import Sequence
from dataclasses import dataclass

from messi.core.records import Role
from messi.reports.runs import FinishedRun


@dataclass(frozen=True)
class Seen:
    """The examples of one run that a measure saw."""

    number: int
    of: int
    """All that there are; at least ``number``, also where the records do not tell."""


def examples_seen(run: FinishedRun, role: Role, number: int) -> Seen:
    """Compare a number of examples with all that the run has in a role."""
    return Seen(number, max(number, sum(record.count for record in run.selected(role))))


def seen_in_words(several: Sequence[Seen]) -> str:
    """Return ``n = 7``, or ``n = 7 of 12``, and ranges where runs differ."""
    numbers, totals = _range([one.number for one in several]), _range([one.of for one in several])
    return f"n = {numbers}" if numbers == totals else f"n = {numbers} of {totals}"


def _range(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return f"{low}" if low == high else f"{low} to {high}"
