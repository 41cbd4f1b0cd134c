"""``messi compare``: which method to use on the user's own domains, and how well it will work on a new one."""

import dataclasses
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from messi.core.errors import MessiError
from messi.core.run_documents import ExpectedAccuracy
from messi.core.rundir import RunDir, folder_name
from messi.core.text import counted
from messi.data.find import data_label
from messi.data.progress import DataProgress, LogProgress
from messi.engine.config import RunConfig
from messi.reports.class_scores import CLASS_SCORES, EXPLANATION, class_scores_sentence
from messi.reports.plan_page import Section, Text
from messi.reports.statistics import Summary, paired_difference, whole_seeds, worst_target
from messi.reports.table import Cell, Column, Row, Table
from messi.studies.common.base import Repetitions
from messi.studies.common.final_model import FinalModel, final_folder
from messi.studies.common.hold_out import Group, Task, find_data_set, find_task, group_labels
from messi.studies.common.methods import vary_methods, with_method
from messi.studies.common.recommendation import Recommendation, find_differences, recommend
from messi.studies.common.results import (
    Results,
    Value,
    diagnostic,
    source_accuracy,
    target_accuracy,
    target_class_score,
)
from messi.studies.common.user_study import HeldOut, UserStudy
from messi.sweeps.plan import Outcome, PlannedRun

METHODS = ("erm", "erm_swad", "coral", "messi", "messi_swad")
"""From simple to complex: the baseline, averaged weights, which help on most benchmarks without another loss, the
strongest plain alignment in DomainBed's comparison, MESSI as in the paper, and its recipe with averaged weights."""
BASELINE = "erm"
_BY_HELD_OUT = (
    "Every accuracy is measured on domains that the run was not trained on: for a new domain this is cross-validation "
    "over your domains, and it uses source data alone. It is not a test result, because a new domain may differ from "
    "all of yours and the best of several methods looks better than it is."
)
_BY_VALIDATION = (
    "The recommendation compares accuracies on the validation part of the source domains alone, because the held-out "
    "domains are the target. Their accuracies are shown, but they were not used."
)
_INTERVALS = "Intervals describe repeated training with other seeds on the same domains, not the choice of domains."


@dataclass(frozen=True, kw_only=True)
class Compare(UserStudy):
    """Every method with every group of domains held out, with the same seeds, so that differences are paired."""

    title: ClassVar[str] = "Comparison of methods"

    tasks: tuple[Task, ...]
    methods: tuple[str, ...] = METHODS
    """Methods and recipes, with settings if they differ; from simple to complex."""

    def __post_init__(self) -> None:
        """Refuse a plan without runs."""
        super().__post_init__()
        if not (self.tasks and self.methods):
            raise MessiError("A comparison requires a data set and a method; name them with --data and --methods.")

    @property
    def lead(self) -> str:
        """What was compared on which data."""
        in_turn = " in turn" if any(len(task.hold_out) > 1 for task in self.tasks) else ""
        return (
            f"{counted(len(self.methods), 'method')} on {', '.join(self.by_data)}, each with domains held out{in_turn}."
        )

    @property
    def extent(self) -> str:
        """The factors of the number of runs."""
        groups = sum(len(task.hold_out) for task in self.tasks)
        seeds, methods = counted(self.seeds, "seed"), counted(len(self.methods), "method")
        return f"{methods}, {counted(groups, 'group')} of held-out domains, {seeds}"

    @property
    def compared_with(self) -> str:
        """ERM with default settings, or the first method."""
        return BASELINE if BASELINE in self.by_label else next(iter(self.by_label))

    @property
    def default_folder(self) -> Path:
        """The folder of the plan if the user names none."""
        return Path("compare") / folder_name("+".join(self.by_data))

    @property
    def by_data(self) -> dict[str, Task]:
        """The tasks by the names of their data; data of equal names is numbered."""
        labels: dict[str, Task] = {}
        for task in self.tasks:
            label = data_label(task.data)
            same = sum(known == label or known.startswith(f"{label} #") for known in labels)
            labels[f"{label} #{same + 1}" if same else label] = task
        return labels

    def runs(self) -> list[PlannedRun]:
        """Return a run for every seed, data set, group of held-out domains and method."""
        return [
            PlannedRun(
                {"method": method, "data": data, "target": target, "seed": seed},
                self.config(method, task, group, seed),
            )
            for seed in self.all_seeds()
            for data, task in self.by_data.items()
            for target, group in group_labels(task.hold_out).items()
            for method in self.by_label
        ]

    def config(self, method: str, task: Task, group: Group, seed: int) -> RunConfig:
        """Return the config of a run."""
        return with_method(self.by_label[method], self.run_config(task.data, group, seed))

    def recommendation(self, results: Results, data: str) -> Recommendation | None:
        """Return the method to use on a data set; None as long as runs are missing."""
        value = source_accuracy if self.by_data[data].sealed else target_accuracy
        found = Results(results.where(data=data))
        if any(outcome.state != "done" for outcome in found.outcomes):
            return None
        return recommend({m: found.scores("target", value, method=m) for m in self.by_label}, self.compared_with)

    def expected(self, results: Results, data: str, method: str) -> ExpectedAccuracy | None:
        """Return the accuracy of a method on the held-out domains of a data set; None as long as runs are missing."""
        found, mean = _domain_scores(results, data, method), results.summary(data=data, method=method)
        if mean is None or not found:
            return None
        domains = dict.fromkeys(domain for domain, _ in found)
        means = [statistics.fmean(v for (name, _), v in found.items() if name == domain) for domain in domains]
        return ExpectedAccuracy(
            mean=mean.mean / 100, lowest=min(means) / 100, highest=max(means) / 100, domains=len(means), seeds=mean.n
        )

    def require_one_model(self) -> None:
        """Raise unless the comparison can end with one model that is trained on all domains."""
        if len(self.tasks) > 1:
            raise MessiError("--final trains one model, so it requires one data set; compare the others separately.")
        if () in self.tasks[0].hold_out:
            raise MessiError("--final trains on all domains, which the official split of the data does not allow.")

    def final(self, results: Results, folder: Path) -> FinalModel:
        """Return the final model of a finished comparison in ``folder``."""
        self.require_one_model()
        ((data, task),) = self.by_data.items()
        found = self.recommendation(results, data)
        expected = found and self.expected(results, data, found.method)
        if not (found and expected):
            raise MessiError(f"{folder} has unfinished runs, so no method is recommended; repeat the command.")
        run = PlannedRun({"method": found.method, "target": "none", "seed": 0}, self.config(found.method, task, (), 0))
        return FinalModel(final_folder(folder), run, expected)

    def report(self, results: Results) -> list[Section]:
        """Return the recommendation, the ranking, and the accuracy on every held-out domain, for every data set."""
        return [section for data in self.by_data for section in self._report(results, data)]

    def _report(self, results: Results, data: str) -> list[Section]:
        place = f"_{folder_name(data).replace(' ', '-')}" if len(self.tasks) > 1 else ""
        ranked = self._ranked(results, data)
        return [
            Text(f"recommendation{place}", self._words(results, data)),
            self._ranking(results, data, ranked, f"ranking{place}"),
            self._by_domain(results, data, ranked, f"held_out{place}"),
        ]

    def _words(self, results: Results, data: str) -> str:
        task = self.by_data[data]
        head = f"## {'Recommendation' if len(self.tasks) == 1 else f'Recommendation for {data}'}"
        found = self.recommendation(results, data)
        if found is None:
            states = [outcome.state for outcome in results.where(data=data)]
            missing, failed = len(states) - states.count("done"), states.count("failed")
            why = f"; {failed} of them failed" if failed else ""
            return f"{head}\n\nNone yet: {missing} of {len(states)} runs are not finished{why}."
        expected = self.expected(results, data, found.method)
        final = _final_model(results)
        lines = [
            head,
            f"**{found.method}**. {found.reason}",
            f"Accuracy to expect on a new domain: **{expected}**." if expected else "",
            _class_scores_text(results, data, found.method),
            _listed(found.findings),
            f"{_BY_VALIDATION if task.sealed else _BY_HELD_OUT} {_INTERVALS}",
            self._on_target(results, data) if task.sealed else "",
            _groups_text(task),
            f"The final model, trained on all domains: `{final}`." if final else "",
        ]
        return "\n\n".join(line for line in lines if line)

    def _on_target(self, results: Results, data: str) -> str:
        """Return how the methods differ on the target, which must not decide between them."""
        scores = {method: results.scores("target", data=data, method=method) for method in self.by_label}
        return f"On the held-out domains:\n\n{_listed(find_differences(scores, self.compared_with))}"

    def _ranked(self, results: Results, data: str) -> list[str]:
        """Return the methods, those that the recommendation prefers first."""
        value = source_accuracy if self.by_data[data].sealed else target_accuracy
        means = {m: found.mean if (found := results.summary(value, data=data, method=m)) else 0 for m in self.by_label}
        return sorted(means, key=lambda method: -means[method])

    def _ranking(self, results: Results, data: str, methods: Sequence[str], name: str) -> Table:
        task, baseline = self.by_data[data], self.compared_with
        timed, diagnosed = results.readable(RunDir.read_timing), results.readable(RunDir.read_diagnostics)
        scores = CLASS_SCORES if results.unbalanced(data=data) else {}
        rows = [
            Row(
                (method,),
                (
                    results.cell(data=data, method=method),
                    _worst(results, data, method),
                    *(results.cell(value=target_class_score(name), data=data, method=method) for name in scores),
                    *self._difference(results, data, method),
                    results.cell(value=source_accuracy, data=data, method=method),
                    diagnosed.cell(value=diagnostic("target_ece"), data=data, method=method),
                    timed.cell(value=_seconds, data=data, method=method),
                ),
                method == baseline,
            )
            for method in methods
        ]
        on = "validation data" if task.sealed else "held-out domains"
        return Table(
            name=name,
            title=f"Ranking on {data}",
            explanation=(
                "Accuracy on held-out domains: mean over the groups of domains that are held out together, and the "
                f"worst domain. {f'{EXPLANATION}. ' if scores else ''}Differences to {baseline} on {on}, in percentage "
                "points, paired by group and seed, with the 95 % interval (Student, over seeds). Val.: accuracy on the "
                "validation part of the source domains. ECE: expected calibration error on held-out domains. Seconds: "
                "of training, with evaluations"
            ),
            provenance=Results(results.where(data=data)).provenance(data=data),
            heads=("Method",),
            columns=(
                Column("Mean %", "up", 1),
                Column("Worst %", "up", 1),
                *scores.values(),
                Column(f"vs {baseline}", "none", 1),
                Column("2.5 %", "none", 1),
                Column("97.5 %", "none", 1),
                Column("Val. %", "up", 1),
                Column("ECE %", "down", 1),
                Column("Seconds", "down", 0),
            ),
            groups=(tuple(rows),),
        )

    def _difference(self, results: Results, data: str, method: str) -> tuple[Cell, Cell, Cell]:
        """Return the mean difference to the baseline and both ends of its interval."""
        value: Value = source_accuracy if self.by_data[data].sealed else target_accuracy
        ours, theirs = (results.scores("target", value, data=data, method=one) for one in (method, self.compared_with))
        found = paired_difference(ours, theirs, list(group_labels(self.by_data[data].hold_out)))
        if method == self.compared_with or found is None:
            return Cell(), Cell(), Cell()
        seeds = len({seed for _, seed in ours.keys() & theirs.keys()})
        low, high = found.interval or (None, None)
        mean, lower, upper = (Cell(None if v is None else Summary(v, None, seeds)) for v in (found.mean, low, high))
        return mean, lower, upper

    def _by_domain(self, results: Results, data: str, methods: Sequence[str], name: str) -> Table:
        groups = group_labels(self.by_data[data].hold_out)
        rows = [
            Row((method,), tuple(results.cell(data=data, method=method, target=group) for group in groups))
            for method in methods
        ]
        return Table(
            name=name,
            title=f"Held-out domains of {data}",
            explanation="Accuracy in percent on the domains of each column, which were held out together",
            provenance=Results(results.where(data=data)).provenance(data=data),
            heads=("Method",),
            columns=tuple(Column(group, "up", 1) for group in groups),
            groups=(tuple(rows),),
        )


@dataclass(frozen=True, kw_only=True)
class ComparisonConfig(HeldOut):
    """What to compare, as a user states it; :meth:`plan` finds the domains of the data."""

    data: tuple[str, ...] = ()
    """Folders domain/class/image, tables, .npz files, WILDS folders, or names ('messi data list'); with settings in
    quotes, such as "patients.csv label=diagnosis domain=hospital"."""
    methods: tuple[str, ...] = METHODS
    """Methods ('messi list algorithms'), recipes ('messi list recipes') or your own files, from simple to complex."""
    vary: tuple[str, ...] = ()
    """Also vary settings, such as ssi_weight=0.01,0.1; several give every combination."""
    seeds: Repetitions = 3
    """Number of repetitions, with seeds 0, 1, ..."""

    def plan(self, progress: DataProgress | None = None) -> Compare:
        """Return the comparison with everything stated, so that it no longer depends on the domains of the data."""
        progress = progress or LogProgress()
        configs = [self.run_config(find_data_set(text), self.target) for text in self.data]
        study = Compare(
            tasks=tuple(find_task(config, self.hold_out, progress) for config in configs),
            methods=vary_methods(self.methods, self.vary),
            seeds=self.seeds,
            **self.settings,
        )
        study.runs()  # raises an error for an unknown method or setting
        return study


def _class_scores_text(results: Results, data: str, method: str) -> str:
    """Return what the accuracy of a method hides if the classes of the data are unbalanced."""
    means = [results.summary(target_class_score(name), data=data, method=method) for name in CLASS_SCORES]
    found = [one.mean for one in means if one and not math.isnan(one.mean)]
    if len(found) < len(CLASS_SCORES):
        return ""
    return class_scores_sentence(*found)


def _listed(sentences: Sequence[str]) -> str:
    return "\n".join(f"- {sentence}" for sentence in sentences)


def _groups_text(task: Task) -> str:
    """Return which domains were held out together, if the tables do not name them."""
    groups = group_labels(task.hold_out)
    named = [f"{label}: {', '.join(group)}" for label, group in groups.items() if label.startswith("group ")]
    return "Held out together: " + "; ".join(named) + "." if named else ""


def _final_model(results: Results) -> Path | None:
    """Return the final model of a plan if it exists."""
    file = RunDir(final_folder(results.outcomes[0].path.parents[1])).model
    return file if file.exists() else None


def _domain_scores(results: Results, data: str, method: str) -> dict[tuple[str, int], float]:
    """Return the accuracy in percent on every held-out domain, by domain and seed, of the seeds that have all."""
    runs = results.where(data=data, method=method)
    scores = results.scores("target", data=data, method=method)
    whole = {seed for _, seed in whole_seeds(scores, list({str(run.labels["target"]) for run in runs}))}
    return {
        (domain, int(run.labels["seed"])): 100 * accuracy
        for run in runs
        if run.labels["seed"] in whole
        for domain, accuracy in run.result().target.items()
    }


def _worst(results: Results, data: str, method: str) -> Cell:
    """Return the lowest accuracy on a held-out domain, mean over seeds, and name the domain."""
    found = _domain_scores(results, data, method)
    worst = worst_target(found, list(dict.fromkeys(domain for domain, _ in found)))
    state = results.state(data=data, method=method)
    return dataclasses.replace(state, ours=worst.summary, note=f"({worst.target})") if worst else state


def _seconds(outcome: Outcome) -> float:
    """Return the seconds of a run; of a resumed one, as many as it would have taken at the pace of its last part."""
    timing = RunDir(outcome.path).read_timing()
    steps = outcome.run.config.resolved().training.steps
    return timing.seconds_with_evaluations * steps / timing.steps if timing.steps else float("nan")
