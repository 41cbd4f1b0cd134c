"""From the runs of a plan to the cells of a table."""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from messi.core.errors import MessiError
from messi.core.info import version
from messi.core.rundir import RunDir
from messi.reports.paper_tables import Cell, Provenance, Published
from messi.reports.statistics import Summary, target_average, whole_seeds
from messi.sweeps.plan import Label, Outcome

CellState = Literal["done", "incomplete", "failed"]
Value = Callable[[Outcome], float]


def target_accuracy(outcome: Outcome) -> float:
    """Return the accuracy on the target in percent, the mean over its domains."""
    return 100 * statistics.fmean(outcome.result().target.values())


def last_line(reason: str) -> str:
    """Return what went wrong, without the trace before it, which lies in a file."""
    return reason.strip().splitlines()[-1]


def source_accuracy(outcome: Outcome) -> float:
    """Return the accuracy on the held-out part of the sources in percent, the mean over domains."""
    return 100 * statistics.fmean(outcome.result().source_val.values())


@dataclass(frozen=True)
class Results:
    """How the runs of a plan stand, and what the finished ones found."""

    outcomes: Sequence[Outcome]

    def readable(self, read: Callable[[RunDir], object]) -> "Results":
        """Return the same, with every finished run as failed of which ``read`` finds a file missing or damaged."""
        return Results([_checked(outcome, read) for outcome in self.outcomes])

    def where(self, **labels: Label) -> list[Outcome]:
        """Return the runs with some labels."""
        return [o for o in self.outcomes if all(o.labels.get(key) == value for key, value in labels.items())]

    def summary(self, value: Value = target_accuracy, **labels: Label) -> Summary | None:
        """Average a value over targets seed by seed, then summarise over the seeds that are complete."""
        targets = list(dict.fromkeys(str(o.labels.get("target", "")) for o in self.where(**labels)))
        return target_average(whole_seeds(self.scores("target", value, **labels), targets), targets)

    def scores(self, by: str, value: Value = target_accuracy, **labels: Label) -> dict[tuple[str, int], float]:
        """Return a value of the finished runs with some labels, by another label, such as the target, and seed."""
        done = [outcome for outcome in self.where(**labels) if outcome.state == "done"]
        return {(str(o.labels.get(by, "")), int(o.labels["seed"])): value(o) for o in done}

    def cell(self, paper: Published | None = None, value: Value = target_accuracy, **labels: Label) -> Cell:
        """Return the cell of a table for the runs with some labels; empty where those that are done have no value."""
        found = self.summary(value, **labels)
        if found and math.isnan(found.mean):
            return Cell(paper=paper)
        return replace(self.state(**labels), ours=found, paper=paper)

    def state(self, **labels: Label) -> Cell:
        """Return a cell without a value that says what became of the runs with some labels."""
        states = {outcome.state for outcome in self.where(**labels)}
        reasons = [outcome.reason for outcome in self.where(**labels) if outcome.state == "failed"]
        state: CellState = "failed" if reasons else "incomplete" if states - {"done"} else "done"
        return Cell(state=state, reason=last_line(reasons[0]) if reasons else "")

    def provenance(self, *, data: str, reduced: str = "") -> Provenance:
        """Say how the numbers came about; the runs of a plan differ in method, target and seed alone."""
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
