"""The results of runs as rows of values, and the three tables of a page: by method, by run and by domain."""

import json
import statistics
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from messi.core.config import flatten
from messi.core.records import EvaluationRecord, Role
from messi.core.run_documents import BetterStep
from messi.reports.runs import FinishedRun, run_labels
from messi.reports.statistics import Scores, Summary, Worst, summarise, target_average, worst_target
from messi.reports.table import Cell, Column, Row, Table

REPEATS = ("seed", "target")
"""The settings in which runs of one method may differ."""
GROWTH = ("seed", "target", "sources", "data.num_sources")
"""The same for runs that are drawn against the number of source domains."""

ROLES: dict[Role, str] = {
    "target": "target, unseen",
    "source_val": "source, validation part",
    "source_test": "source, test part",
    "unseen_val": "unseen, validation part",
    "target_val": "target, the part that the oracle validates on",
}


@dataclass(frozen=True, kw_only=True)
class ResultRow:
    """The result of one run; accuracies are between 0 and 1."""

    label: str
    algorithm: str
    seed: int
    steps: int
    selected_step: int
    averaged_steps: tuple[int, int] | None
    averaged_runs: str
    """How many runs were averaged, such as "3 of 5"; empty for a run that was trained."""
    better_step: BetterStep | None
    """The single step that became the model because it is clearly better than the average."""
    validation: float
    """The mean over domains of the accuracy on the validation data used for selection."""
    validation_count: int
    targets: tuple[EvaluationRecord, ...]
    target_part: str
    selection: str
    recipe: str
    protocol: str

    @property
    def target_mean(self) -> float:
        """The mean accuracy over target domains."""
        return statistics.fmean(record.accuracy for record in self.targets)

    @property
    def selected_steps(self) -> str:
        """The selected step, or the steps whose weights were averaged."""
        return "{} to {} (mean)".format(*self.averaged_steps) if self.averaged_steps else str(self.selected_step)

    @property
    def selected(self) -> str:
        """The selected steps of all steps, or the number of runs whose weights were averaged."""
        return f"mean of {self.averaged_runs} runs" if self.averaged_runs else f"{self.selected_steps} of {self.steps}"

    @property
    def worst_target(self) -> EvaluationRecord | None:
        """The target domain with the lowest accuracy, if there are several."""
        return min(self.targets, key=lambda r: r.accuracy) if len(self.targets) > 1 else None


@dataclass(frozen=True)
class MethodResult:
    """The results of all runs of one method; None if a target or a seed is missing."""

    label: str
    targets: tuple[Summary | None, ...]
    average: Summary | None
    worst: Worst | None
    validation: Summary
    runs: int


@dataclass(frozen=True)
class MethodResults:
    """The results of every method on every target; means over seeds, as shares."""

    targets: tuple[str, ...]
    methods: tuple[MethodResult, ...]


def result_rows(runs: Sequence[FinishedRun]) -> list[ResultRow]:
    """Return the result of each run."""
    return [_result(run, label) for run, label in zip(runs, run_labels(runs), strict=True)]


def runs_table(rows: Sequence[ResultRow]) -> Table:
    """Return a row for every run; a target domain that a run did not hold out is empty."""
    domains = list(dict.fromkeys(record.domain for row in rows for record in row.targets))
    several = any(row.worst_target for row in rows)
    accuracies = (
        *(f"Target {domain} %" for domain in domains),
        *(("Mean of targets %", "Worst target %") if several else ()),
        "Validation %",
    )
    recipes = any(row.recipe for row in rows)
    texts = ("Selected step", "Selection", "Target part", *(("Recipe",) if recipes else ()), "Protocol", "Seed")
    return Table(
        name="runs",
        heads=("Run",),
        columns=tuple(Column(name, "none") for name in (*accuracies, *texts)),
        groups=(
            tuple(_run_row(row, place, domains, several=several, recipes=recipes) for place, row in enumerate(rows)),
        ),
    )


def group_by_method(
    runs: Sequence[FinishedRun], *, ignoring: Collection[str] = REPEATS
) -> dict[str, list[FinishedRun]]:
    """Group runs whose configs differ only in the ignored settings, under a label for each group."""
    groups: dict[str, list[FinishedRun]] = {}
    for run in runs:
        flat = flatten(run.config)
        key = json.dumps({name: flat[name] for name in sorted(flat) if name not in ignoring})
        groups.setdefault(key, []).append(run)
    labels = run_labels([members[0] for members in groups.values()], ignoring=ignoring)
    return dict(zip(labels, groups.values(), strict=True))


def method_results(runs: Sequence[FinishedRun]) -> MethodResults | None:
    """Average runs over seeds, if a method has several runs and every domain is always held out alone."""
    groups = group_by_method(runs)
    held_out = {run.targets for run in runs}
    targets = tuple(dict.fromkeys(domain for run in runs for domain in run.targets))
    if len(groups) == len(runs) or () in held_out or sum(map(len, held_out)) > len(targets):
        return None
    return MethodResults(targets, tuple(_method(label, members, targets) for label, members in groups.items()))


def methods_table(results: MethodResults) -> Table:
    """Return a row for every method and a column for every target."""
    several = len(results.targets) > 1
    columns = (
        *(Column(f"{target} %") for target in results.targets),
        *((Column("Mean %"), Column("Worst %", "none")) if several else ()),
        Column("Validation %", "none"),
        Column("Runs", "none", 0),
    )
    return Table(
        name="methods",
        heads=("Method",),
        columns=columns,
        groups=(tuple(_method_row(one, several=several) for one in results.methods),),
    )


def domains_table(runs: Sequence[FinishedRun]) -> Table:
    """Return the accuracy of the selected models on every domain in every role, the targets first."""
    measured = [
        {(r.role, r.domain): r for role in ("target", run.validation, "source_test") for r in run.selected(role)}
        for run in runs
    ]
    keys = sorted(dict.fromkeys(key for found in measured for key in found), key=lambda key: key[0] != "target")
    rows = (
        Row((domain, ROLES[role]), tuple(_accuracy(found.get((role, domain))) for found in measured), badge=role)
        for role, domain in keys
    )
    return Table(
        name="domains",
        heads=("Domain", "Role"),
        columns=tuple(Column(f"{label} %", "none", look=place) for place, label in enumerate(run_labels(runs))),
        groups=(tuple(rows),),
    )


def _result(run: FinishedRun, label: str) -> ResultRow:
    validation = run.selected(run.validation)
    return ResultRow(
        label=label,
        algorithm=run.algorithm,
        seed=run.seed,
        steps=run.steps,
        selected_step=run.selected_step,
        averaged_steps=run.averaged_steps,
        averaged_runs=f"{sum(one.kept for one in runs)} of {len(runs)}" if (runs := run.averaged_runs) else "",
        better_step=run.better_step,
        validation=statistics.fmean(record.accuracy for record in validation),
        validation_count=sum(record.count for record in validation),
        targets=tuple(run.selected("target")),
        target_part=run.target_part,
        selection=run.selection,
        recipe=run.recipe,
        protocol=run.protocol,
    )


def _run_row(row: ResultRow, place: int, domains: Sequence[str], *, several: bool, recipes: bool) -> Row:
    targets = {record.domain: record for record in row.targets}
    worst = row.worst_target
    extremes = (_share(row.target_mean), _share(worst.accuracy, worst.domain)) if worst else (Cell(), Cell())
    cells = (
        *(_accuracy(targets.get(domain)) for domain in domains),
        *(extremes if several else ()),
        _share(row.validation, f"n = {row.validation_count}"),
        Cell(text=row.selected),
        Cell(text=row.selection),
        Cell(text=row.target_part if row.targets else ""),
        *((Cell(text=row.recipe),) if recipes else ()),
        Cell(text=row.protocol),
        Cell(text=str(row.seed)),
    )
    return Row((row.label,), cells, look=place)


def _method(label: str, runs: Sequence[FinishedRun], targets: Sequence[str]) -> MethodResult:
    scores = {(r.domain, run.seed): r.accuracy for run in runs for r in run.selected("target")}
    several = len(targets) > 1
    validation: dict[int, list[float]] = {}
    for run in runs:
        validation.setdefault(run.seed, []).append(statistics.fmean(r.accuracy for r in run.selected(run.validation)))
    return MethodResult(
        label=label,
        targets=tuple(_on_target(scores, target) for target in targets),
        average=target_average(scores, targets) if several else None,
        worst=worst_target(scores, targets) if several else None,
        validation=summarise([statistics.fmean(values) for values in validation.values()]),
        runs=len(runs),
    )


def _method_row(one: MethodResult, *, several: bool) -> Row:
    worst = _share(one.worst.summary.mean, one.worst.target) if one.worst else Cell()
    cells = (
        *map(_over_seeds, one.targets),
        *((_over_seeds(one.average), worst) if several else ()),
        _over_seeds(one.validation),
        Cell(Summary(one.runs, None, 1)),
    )
    return Row((one.label,), cells)


def _on_target(scores: Scores, target: str) -> Summary | None:
    values = [value for (domain, _), value in scores.items() if domain == target]
    return summarise(values) if values else None


def _share(share: float, note: str = "") -> Cell:
    return Cell(Summary(100 * share, None, 1), note=note)


def _accuracy(record: EvaluationRecord | None) -> Cell:
    return _share(record.accuracy, f"n = {record.count}") if record else Cell()


def _over_seeds(found: Summary | None) -> Cell:
    return Cell(found.in_percent(), note=f"n = {found.n}") if found else Cell()
