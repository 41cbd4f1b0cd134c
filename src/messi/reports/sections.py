"""Which sections of the page a run's ``diagnostics.json`` fills, and what stands there where it does not."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from messi.core.errors import MessiError
from messi.reports.album import expert_album, mistake_album
from messi.reports.calibration import reliability
from messi.reports.embedding import embedding_of
from messi.reports.experts import routing_maps, similarity, slot_matrix
from messi.reports.runs import FinishedRun


@dataclass(frozen=True)
class Section:
    """What a section shows of every run, by the run's place, and a sentence for those that have nothing of it."""

    runs: dict[int, Any]
    absent: list[str]


@dataclass(frozen=True)
class _Kind:
    build: Callable[[FinishedRun], Any]
    what: str
    why: str


_KINDS = {
    "routing": _Kind(routing_maps, "is no routing", "the method has no router"),
    "slots": _Kind(slot_matrix, "are no slots", "that takes a router and two source domains"),
    "similarity": _Kind(similarity, "is no likeness of experts", "the method has none, or one alone"),
    "experts": _Kind(expert_album, "are no pictures by expert", "the method has no experts, or the inputs no images"),
    "embedding": _Kind(embedding_of, "is no embedding", "the diagnostics have none"),
    "calibration": _Kind(reliability, "is no calibration", "the diagnostics have none"),
    "mistakes": _Kind(mistake_album, "are no mistakes", "the inputs are no images"),
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
    absent = [f"There {kind.what} to show for {'; '.join(names)}: {reason}." for names, reason in reasons if names]
    return Section(shown, absent)


def _read(run: FinishedRun, build: Callable[[FinishedRun], Any]) -> Any:
    try:
        return build(run)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise MessiError(
            f"{run.path / 'diagnostics.json'} is not one that this version can read "
            f"({type(error).__name__}: {error}); take it away to get a report without it."
        ) from error
