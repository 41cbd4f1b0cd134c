"""How several runs did, as rows of values and as a table of text."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from messi.core.records import EvaluationRecord
from messi.reports.runs import FinishedRun, run_labels


@dataclass(frozen=True, kw_only=True)
class ResultRow:
    """The result of one run; accuracies lie between 0 and 1."""

    label: str
    algorithm: str
    seed: int
    steps: int
    selected_step: int
    averaged_steps: tuple[int, int] | None
    validation: float
    """The mean over domains of the accuracy on the validation data that the step was selected by."""
    validation_count: int
    targets: tuple[EvaluationRecord, ...]
    target_part: str
    selection: str
    protocol: str

    @property
    def target_mean(self) -> float:
        """The mean accuracy over target domains."""
        return statistics.fmean(record.accuracy for record in self.targets)

    @property
    def selected_steps(self) -> str:
        """The step that the weights are of, or the steps that they are the mean of."""
        return "{} to {} (mean)".format(*self.averaged_steps) if self.averaged_steps else str(self.selected_step)

    @property
    def worst_target(self) -> EvaluationRecord | None:
        """The target domain with the lowest accuracy, where there are several."""
        return min(self.targets, key=lambda r: r.accuracy) if len(self.targets) > 1 else None


@dataclass(frozen=True)
class ResultTable:
    """A table of text: one row per run."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def percent(share: float) -> str:
    """Return a share in percent with one decimal."""
    return f"{100 * share:.1f}"


def result_rows(runs: Sequence[FinishedRun]) -> list[ResultRow]:
    """Return how each run did."""
    return [_row(run, label) for run, label in zip(runs, run_labels(runs), strict=True)]


def result_table(rows: Sequence[ResultRow]) -> ResultTable:
    """Put rows under one header; a target domain that a run did not hold out stays empty."""
    domains = list(dict.fromkeys(record.domain for row in rows for record in row.targets))
    several = any(row.worst_target for row in rows)
    header = (
        "Run",
        *(f"Target {domain} %" for domain in domains),
        *(("Mean of targets %", "Worst target %") if several else ()),
        *("Validation %", "Selected step", "Selection", "Target part", "Protocol", "Seed"),
    )
    return ResultTable(header, tuple(_cells(row, domains, several=several) for row in rows))


def _row(run: FinishedRun, label: str) -> ResultRow:
    validation = run.selected(run.validation)
    return ResultRow(
        label=label,
        algorithm=run.algorithm,
        seed=run.seed,
        steps=run.steps,
        selected_step=run.selected_step,
        averaged_steps=run.averaged_steps,
        validation=statistics.fmean(record.accuracy for record in validation),
        validation_count=sum(record.count for record in validation),
        targets=tuple(run.selected("target")),
        target_part=run.target_part,
        selection=run.selection,
        protocol=run.protocol,
    )


def _cells(row: ResultRow, domains: Sequence[str], *, several: bool) -> tuple[str, ...]:
    measured = {r.domain: f"{percent(r.accuracy)} (n = {r.count})" for r in row.targets}
    worst = row.worst_target
    spread = (percent(row.target_mean), f"{percent(worst.accuracy)} ({worst.domain})") if worst else ("", "")
    return (
        row.label,
        *(measured.get(domain, "") for domain in domains),
        *(spread if several else ()),
        f"{percent(row.validation)} (n = {row.validation_count})",
        f"{row.selected_steps} of {row.steps}",
        row.selection,
        row.target_part if row.targets else "",
        row.protocol,
        str(row.seed),
    )
