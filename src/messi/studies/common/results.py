"""From the runs of a plan to the cells of a table: everything here reads files and computes, nothing loads a model."""

import functools
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from messi.core.errors import MessiError
from messi.core.info import version
from messi.core.rundir import RunDir
from messi.core.text import last_line
from messi.reports.measures import MEASURES
from messi.reports.statistics import Summary, target_average, whole_seeds
from messi.reports.table import Cell, Provenance, Published
from messi.sweeps.plan import Label, Outcome

_FOR_PICTURES = ("embedding", "embedding_domains", "pictures", "slots")
"""The largest parts of the diagnostics, in which there are no measures."""
CellState = Literal["done", "incomplete", "failed"]
Value = Callable[[Outcome], float]
"""A number from a finished run; NaN if the run does not have it."""


def target_accuracy(outcome: Outcome) -> float:
    """Return the accuracy on the target in percent, the mean over its domains."""
    return 100 * statistics.fmean(outcome.result().target.values())


def source_accuracy(outcome: Outcome) -> float:
    """Return the accuracy on the validation part of the source domains in percent, the mean over domains."""
    return 100 * statistics.fmean(outcome.result().source_val.values())


def target_class_score(name: str) -> Value:
    """Return a function that reads a score of unbalanced classes on the target in percent, the mean over domains."""

    def value(outcome: Outcome) -> float:
        found = outcome.result().class_scores.get("target", {})
        return 100 * statistics.fmean(getattr(one, name) for one in found.values()) if found else math.nan

    return value


def diagnostic(measure: str, *, unit: float | None = None) -> Value:
    """Return a function that reads a measure from a run, in ``unit`` or in the unit of the measure's column."""
    wanted = MEASURES[measure]
    divisor = unit or wanted.short_unit or wanted.unit

    def value(outcome: Outcome) -> float:
        found = _measures(RunDir(outcome.path))[measure]
        return math.nan if found is None else found / divisor

    return value


def _measures(run: RunDir) -> dict[str, float | None]:
    """Return all measures of a run, by name."""
    files = [file for file in (run.description, run.result, run.diagnostics) if file.exists()]
    return _read_measures(run, tuple((stat.st_mtime_ns, stat.st_size) for stat in map(Path.stat, files)))


@functools.lru_cache(maxsize=1 << 16)  # a table reads several measures of every run
def _read_measures(run: RunDir, _state: tuple[tuple[int, int], ...]) -> dict[str, float | None]:
    document = run.read_diagnostics(without=_FOR_PICTURES)
    return {name: measure.value(document) for name, measure in MEASURES.items()}


@dataclass(frozen=True)
class Results:
    """The state of the runs of a plan, and the results of the finished ones."""

    outcomes: Sequence[Outcome]

    def readable(self, read: Callable[[RunDir], object]) -> "Results":
        """Return the same results, but mark a finished run as failed if ``read`` finds its file missing or damaged."""
        return Results([_checked(outcome, read) for outcome in self.outcomes])

    def diagnosed(self) -> "Results":
        """Return the same results, but mark a finished run as failed if its diagnostics are missing or damaged."""
        return self.readable(_measures)

    def unbalanced(self, **labels: Label) -> bool:
        """Return whether a finished run with some labels has scores of unbalanced classes."""
        return any(o.state == "done" and o.result().class_scores for o in self.where(**labels))

    def where(self, **labels: Label) -> list[Outcome]:
        """Return the runs with some labels."""
        return [o for o in self.outcomes if all(o.labels.get(key) == value for key, value in labels.items())]

    def summary(self, value: Value = target_accuracy, **labels: Label) -> Summary | None:
        """Average a value over targets seed by seed, then summarise the complete seeds."""
        targets = list(dict.fromkeys(str(o.labels.get("target", "")) for o in self.where(**labels)))
        return target_average(whole_seeds(self.scores("target", value, **labels), targets), targets)

    def scores(self, by: str, value: Value = target_accuracy, **labels: Label) -> dict[tuple[str, int], float]:
        """Return a value of the finished runs with some labels, by another label, such as the target, and seed."""
        done = [outcome for outcome in self.where(**labels) if outcome.state == "done"]
        return {(str(o.labels.get(by, "")), int(o.labels["seed"])): value(o) for o in done}

    def cell(self, paper: Published | None = None, value: Value = target_accuracy, **labels: Label) -> Cell:
        """Return the cell of the runs with some labels; empty if the finished ones do not have the value."""
        found = self.summary(value, **labels)
        if found and math.isnan(found.mean):
            return Cell(paper=paper)
        return replace(self.state(**labels), ours=found, paper=paper)

    def state(self, **labels: Label) -> Cell:
        """Return a cell without a value that states what happened to the runs with some labels."""
        runs = self.where(**labels)
        failed = [outcome.reason for outcome in runs if outcome.state == "failed"]
        unmeasured = [outcome.reason for outcome in runs if outcome.state != "failed" and outcome.reason]
        waiting = any(outcome.state != "done" for outcome in runs)
        state: CellState = "failed" if failed else "incomplete" if waiting else "done"
        reasons = [last_line(reason) for reason in failed] + unmeasured
        return Cell(state=state, reason=reasons[0] if reasons else "")

    def provenance(self, *, data: str, reduced: str = "") -> Provenance:
        """Return how the numbers were obtained; the runs of a plan differ only in method, target and seed."""
        config = self.outcomes[0].run.config.resolved()
        settings = config.training
        return Provenance(
            data=data,
            protocol=f"{config.protocol}, {settings.steps} steps" + (f"; reduced: {reduced}" if reduced else ""),
            selection=settings.selection,
            target_part=settings.target_part,
            seeds=tuple(sorted({int(outcome.labels["seed"]) for outcome in self.outcomes})),
            version=version(),
        )


def _checked(outcome: Outcome, read: Callable[[RunDir], object]) -> Outcome:
    try:
        if outcome.state == "done":
            read(RunDir(outcome.path))
    except MessiError as error:
        return replace(outcome, state="failed", reason=str(error))
    return outcome
