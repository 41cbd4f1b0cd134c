"""Reliability diagrams: whether a model is right as often as it is sure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from messi.core.records import Role
from messi.core.run_documents import Bin
from messi.reports.runs import FinishedRun
from messi.reports.sample_size import examples_seen, seen_in_words
from messi.reports.tables import percent

ROLES: tuple[Role, ...] = ("source_val", "target")


@dataclass(frozen=True)
class Dot:
    """The answers in one bin of confidence: places in percent of the plot, counted from its upper left corner."""

    x: float
    y: float
    radius: float
    """In pixels; the area grows with the number of answers."""
    text: str


@dataclass(frozen=True)
class Reliability:
    """The bins and the expected calibration error."""

    ece: float
    dots: tuple[Dot, ...]
    seen: str
    """How many examples it is of."""


def reliability(run: FinishedRun) -> dict[Role, Reliability]:
    """Return the diagrams of a run by role."""
    found = run.diagnostics.get("calibration", {})
    measured = {role: (found[role]["ece"], found[role]["bins"]) for role in ROLES if role in found}
    return {role: _reliability(run, role, ece, bins) for role, (ece, bins) in measured.items() if ece is not None}


def _reliability(run: FinishedRun, role: Role, ece: float, bins: Sequence[Bin]) -> Reliability:
    total = sum(one["count"] for one in bins)
    dots = (_dot(one["confidence"], one["accuracy"], one["count"], total) for one in bins if one["count"])
    return Reliability(float(ece), tuple(dots), seen_in_words([examples_seen(run, role, total)]))


def _dot(sure: float, right: float, count: float, total: float) -> Dot:
    text = f"{percent(sure)} % sure, {percent(right)} % right\nn = {count:g} of {total:g}"
    return Dot(round(100 * sure, 2), round(100 * (1 - right), 2), round(2 + 8 * math.sqrt(count / total), 1), text)
