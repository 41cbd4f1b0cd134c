"""Methods against targets: runs whose settings agree are averaged over their seeds."""

import json
import statistics
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from messi.reports.runs import FinishedRun, flatten, run_labels
from messi.reports.statistics import Scores, Summary, Worst, summarise, target_average, worst_target

REPEATS = ("seed", "target")
"""What may differ between runs of one method."""
GROWTH = ("seed", "target", "sources", "data.num_sources")
"""What may differ between runs of one method that are drawn against the number of source domains."""


@dataclass(frozen=True)
class MethodRow:
    """How one method did; None where a target or a seed is missing."""

    label: str
    targets: tuple[Summary | None, ...]
    average: Summary | None
    worst: Worst | None
    validation: Summary
    runs: int


@dataclass(frozen=True)
class MethodTable:
    """A row for every method and a column for every target."""

    targets: tuple[str, ...]
    rows: tuple[MethodRow, ...]

    def best(self, place: int) -> float | None:
        """Return the highest mean on the target at a place, where there is something to compare."""
        means = [cell.mean for row in self.rows if (cell := row.targets[place])]
        return max(means) if len(means) > 1 else None

    @property
    def best_average(self) -> float | None:
        """The highest mean over targets, where there is something to compare."""
        means = [row.average.mean for row in self.rows if row.average]
        return max(means) if len(means) > 1 else None


def group_by_method(runs: Sequence[FinishedRun], *, besides: Collection[str] = REPEATS) -> dict[str, list[FinishedRun]]:
    """Group runs whose configs differ in nothing but the settings named, under a label for each group."""
    groups: dict[str, list[FinishedRun]] = {}
    for run in runs:
        flat = flatten(run.config)
        key = json.dumps({name: flat[name] for name in sorted(flat) if name not in besides})
        groups.setdefault(key, []).append(run)
    labels = run_labels([members[0] for members in groups.values()], besides=besides)
    return dict(zip(labels, groups.values(), strict=True))


def method_table(runs: Sequence[FinishedRun]) -> MethodTable | None:
    """Return the table, where at least one method has several runs and every domain is always held out alone."""
    groups = group_by_method(runs)
    held_out = {run.targets for run in runs}
    targets = tuple(dict.fromkeys(domain for run in runs for domain in run.targets))
    if len(groups) == len(runs) or () in held_out or sum(map(len, held_out)) > len(targets):
        return None
    return MethodTable(targets, tuple(_row(label, members, targets) for label, members in groups.items()))


def _row(label: str, runs: Sequence[FinishedRun], targets: Sequence[str]) -> MethodRow:
    scores = {(r.domain, run.seed): r.accuracy for run in runs for r in run.selected("target")}
    several = len(targets) > 1
    validation: dict[int, list[float]] = {}
    for run in runs:
        validation.setdefault(run.seed, []).append(statistics.fmean(r.accuracy for r in run.selected(run.validation)))
    return MethodRow(
        label=label,
        targets=tuple(_on_target(scores, target) for target in targets),
        average=target_average(scores, targets) if several else None,
        worst=worst_target(scores, targets) if several else None,
        validation=summarise([statistics.fmean(values) for values in validation.values()]),
        runs=len(runs),
    )


def _on_target(scores: Scores, target: str) -> Summary | None:
    values = [value for (domain, _), value in scores.items() if domain == target]
    return summarise(values) if values else None
