"""Reliability diagrams: the accuracy of a model against its confidence."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from messi.core.records import Role
from messi.core.run_documents import Bin
from messi.reports.charts import Bubble, Chart, Series
from messi.reports.measures import sample_size, sample_size_text
from messi.reports.number_format import percent
from messi.reports.runs import FinishedRun

TITLES: dict[Role, str] = {"source_val": "Source validation", "target": "Target"}


@dataclass(frozen=True)
class Reliability:
    """The bins of one run in one role."""

    ece: float
    """The expected calibration error."""
    bins: tuple[Bin, ...]
    sample_size: str


def reliability(run: FinishedRun) -> dict[Role, Reliability]:
    """Return the bins of a run by role."""
    found = run.diagnostics.get("calibration", {})
    measured = {role: (found[role]["ece"], found[role]["bins"]) for role in TITLES if role in found}
    return {
        role: Reliability(float(ece), tuple(bins), sample_size_text([sample_size(run, role, _total(bins))]))
        for role, (ece, bins) in measured.items()
        if ece is not None
    }


def reliability_chart(role: Role, by_run: Mapping[int, Reliability], labels: Mapping[int, str]) -> Chart:
    """Draw the bins of several runs, given by place on the page; the area of a dot grows with its number of answers."""
    series = []
    for place, found in by_run.items():
        bins, total = [one for one in found.bins if one["count"]], _total(found.bins)
        series.append(
            Series(
                labels[place],
                points={100 * one["confidence"]: 100 * one["accuracy"] for one in bins},
                look=place,
                bubbles={100 * one["confidence"]: _bubble(labels[place], one, total) for one in bins},
            )
        )
    return Chart(title=TITLES[role], series=tuple(series), x="confidence, %", last=100, diagonal=True)


def _bubble(label: str, one: Bin, total: int) -> Bubble:
    text = (
        f"{label}\nconfidence {percent(one['confidence'])} %, accuracy {percent(one['accuracy'])} %\n"
        f"n = {one['count']:g} of {total:g}"
    )
    return Bubble(round(2 + 8 * math.sqrt(one["count"] / total), 1), text)


def _total(bins: list[Bin] | tuple[Bin, ...]) -> int:
    return sum(one["count"] for one in bins)
