"""The sections of a page that show ``diagnostics.json``, and a sentence for every run that has nothing to show."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from messi.core.errors import MessiError
from messi.reports.calibration import reliability
from messi.reports.embedding import embedding_of
from messi.reports.experts import routing_maps, similarity, slot_matrix
from messi.reports.pictures import expert_album, mistake_album
from messi.reports.runs import FinishedRun


@dataclass(frozen=True)
class Section:
    """What a section shows of every run, by the place of the run, and sentences about runs with nothing to show."""

    runs: dict[int, Any]
    absent: list[str]
    title: str
    """Empty if the section has its own part in ``templates/diagnostics.html``."""
    caption: str


@dataclass(frozen=True)
class _Kind:
    """How to build a section.

    With a title, ``build`` returns charts and heat maps, and the page needs nothing else to show them.
    """

    build: Callable[[FinishedRun], Any]
    what: str
    why: str
    title: str = ""
    caption: str = ""


_KINDS = {
    "routing": _Kind(
        routing_maps,
        "No routing",
        "the method has no router",
        title="Routing",
        caption="The mean weight of each expert in the selected model. The router does not see the domain. Every row "
        "adds up to 1; n is the number of examples.",
    ),
    "slots": _Kind(slot_matrix, "No slots", "slots require a router and two source domains"),
    "similarity": _Kind(similarity, "No similarity of experts", "the method has fewer than two experts"),
    "experts": _Kind(expert_album, "No pictures by expert", "the method has no experts, or the inputs are not images"),
    "embedding": _Kind(embedding_of, "No embedding", "the diagnostics do not contain one"),
    "calibration": _Kind(reliability, "No calibration", "the diagnostics do not contain it"),
    "mistakes": _Kind(mistake_album, "No mistakes", "the inputs are not images"),
}


def sections(runs: Sequence[FinishedRun], labels: Sequence[str]) -> dict[str, Section]:
    """Return the sections by name."""
    return {name: _section(kind, runs, labels) for name, kind in _KINDS.items()}


def _section(kind: _Kind, runs: Sequence[FinishedRun], labels: Sequence[str]) -> Section:
    shown = {place: part for place, run in enumerate(runs) if (part := _read(run, kind.build))}
    missing = [place for place in range(len(runs)) if place not in shown]
    without_file = [labels[place] for place in missing if not runs[place].diagnostics]
    without_part = [labels[place] for place in missing if runs[place].diagnostics]
    reasons = ((without_file, "the run folder has no diagnostics.json"), (without_part, kind.why))
    absent = [f"{kind.what} to show for {'; '.join(names)}: {reason}." for names, reason in reasons if names]
    return Section(shown, absent, kind.title, kind.caption)


def _read(run: FinishedRun, build: Callable[[FinishedRun], Any]) -> Any:
    try:
        return build(run)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise MessiError(
            f"{run.path / 'diagnostics.json'} cannot be read by this version "
            f"({type(error).__name__}: {error}); move it out of the run folder to get a report without it."
        ) from error
