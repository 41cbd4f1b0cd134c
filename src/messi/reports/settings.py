"""The settings, data and versions of runs, side by side."""

from collections.abc import Sequence
from dataclasses import dataclass

from messi.core.config import flatten
from messi.reports.runs import FinishedRun


@dataclass(frozen=True)
class Setting:
    """The value of one setting in every run; None if a run does not have it."""

    name: str
    values: tuple[str | None, ...]

    @property
    def common(self) -> bool:
        """Whether all runs have it with the same value."""
        return len(set(self.values)) == 1

    @property
    def differs(self) -> bool:
        """Whether two runs have different values."""
        return len(set(self.values) - {None}) > 1


def compare_settings(runs: Sequence[FinishedRun]) -> dict[str, list[Setting]]:
    """Return the settings of all runs under the headings config, data, and versions."""
    parts = {
        "Config": [flatten(run.config) for run in runs],
        "Data": [_data(run) for run in runs],
        "Versions and machine": [dict(run.environment) for run in runs],
    }
    return {heading: _side_by_side(flats) for heading, flats in parts.items()}


def _data(run: FinishedRun) -> dict[str, str]:
    return {
        "fingerprint": run.fingerprint,
        "classes": ", ".join(run.classes),
        "sources": ", ".join(run.sources),
        "target": ", ".join(run.targets),
    }


def _side_by_side(flats: Sequence[dict[str, str]]) -> list[Setting]:
    names = list(dict.fromkeys(name for flat in flats for name in flat))
    parts = [name.partition(".")[0] for name in names]
    # Otherwise settings that only the second run has would come last, far from the part they belong to.
    names.sort(key=lambda name: parts.index(name.partition(".")[0]))
    return [Setting(name, tuple(flat.get(name) for flat in flats)) for name in names]
