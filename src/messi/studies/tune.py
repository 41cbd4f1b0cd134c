"""``messi tune``: a random search over the declared ranges of every method, with domains held out in turn."""

import dataclasses
import functools
import shlex
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from messi.core.config import Bounds, Config, Search
from messi.core.errors import MessiError
from messi.core.rundir import RunDir, folder_name
from messi.core.text import counted
from messi.data.find import BY_PATH, data_label
from messi.data.progress import DataProgress, LogProgress
from messi.engine.config import RunConfig
from messi.engine.settings import PARTS, with_settings
from messi.evaluation.selection import ORACLE, select
from messi.reports.class_scores import CLASS_SCORES, EXPLANATION
from messi.reports.domainbed_table import domainbed_latex, domainbed_text
from messi.reports.plan_page import Section, Text
from messi.reports.statistics import Summary
from messi.reports.table import Cell, Column, Provenance, Row, Table
from messi.studies.common.base import Repetitions
from messi.studies.common.draws import Draws
from messi.studies.common.hold_out import Group, Task, domain_names, find_data_set, find_task, group_labels
from messi.studies.common.methods import method_and_settings, with_method
from messi.studies.common.results import Results, target_class_score
from messi.studies.common.user_study import HeldOut, UserStudy
from messi.sweeps.choose_draw import TITLES, DrawRule
from messi.sweeps.halving import FAILED, pauses, train_until
from messi.sweeps.plan import Outcome, Plan, PlannedRun
from messi.sweeps.search import check_changes, draw, drawn_values, search_space

METHODS = ("messi",)


@dataclass(frozen=True, kw_only=True)
class SearchOptions(Config):
    """How to search."""

    draws: Annotated[int, Bounds(minimum=1, maximum=10_000)] = 20
    """Number of settings to try; draw 0 is the defaults."""
    search: tuple[str, ...] = ()
    """Ranges besides the declared ones: field=low..high, field=log:low..high or field=a,b,c; field=a fixes it."""
    search_seed: Annotated[int, Bounds(minimum=0)] = 0
    """Seed of the draws; the same for all methods and seeds."""
    rule: DrawRule = "source_val"
    """Choose by validation on the source domains, by holding out each source domain, or by the target (the oracle)."""
    halving: bool = False
    """Pause poor draws early: at a ninth and a third of the steps the best third by source validation continues."""
    seeds: Repetitions = 1
    """Number of repetitions of every draw, with seeds 0, 1, ..."""


@dataclass(frozen=True, kw_only=True)
class Tune(SearchOptions, UserStudy):
    """Draws of every method, with every group of domains held out."""

    title: ClassVar[str] = "Hyper-parameter search"

    task: Task
    domains: tuple[str, ...]
    """All domains of the data."""
    methods: tuple[str, ...] = METHODS

    def __post_init__(self) -> None:
        """Refuse a search that cannot be done."""
        super().__post_init__()
        if not self.methods:
            raise MessiError("A search requires at least one method; name some with --methods.")
        if self.halving and self.rule != "source_val":
            raise MessiError(f"Halving compares draws by source validation; omit --halving or --rule {self.rule}.")
        if self.rule != "source_val" and () in self.task.hold_out:
            raise MessiError(f"The rule '{self.rule}' requires domains to hold out; use --split stratified.")
        if self.rule == "leave_one_out" and any(len(self.domains) - len(group) < 2 for group in self.task.hold_out):
            raise MessiError(
                "The rule 'leave_one_out' holds out a source domain together with the target, so at least two source "
                f"domains are required; the domains of the data are {', '.join(self.domains)}."
            )

    @property
    def lead(self) -> str:
        """What was searched, and how draws were chosen."""
        return (
            f"{counted(self.draws, 'draw')} of {', '.join(self.by_label)} on {data_label(self.task.data)}, chosen by "
            f"{TITLES[self.rule]}. Draw 0 is the defaults."
        )

    @property
    def notes(self) -> Mapping[str, str]:
        """What the oracle knows, and what halving leaves out."""
        oracle = "draws were chosen by labels of the target domains, so a user cannot expect these accuracies"
        halving = "draws with a low accuracy on source validation were paused early"
        return {
            **({"Oracle": oracle} if self.rule == "oracle" else {}),
            **({"Halving": halving} if self.halving else {}),
        }

    @property
    def extent(self) -> str:
        """The factors of the number of runs."""
        folds = f" and {len(self._folds)} for cross-validation" if self._folds else ""
        return (
            f"{counted(len(self.methods), 'method')}, {counted(self.draws, 'draw')}, {counted(self.seeds, 'seed')}, "
            f"{counted(len(self._targets), 'group')} of held-out domains{folds}"
        )

    @property
    def default_folder(self) -> Path:
        """The folder of the plan if the user names none."""
        return Path("tune") / folder_name(data_label(self.task.data))

    def runs(self) -> list[PlannedRun]:
        """Return a run for every draw, seed, method and group of held-out domains, the first draws first."""
        return [
            PlannedRun(
                {"method": method, "target": target, "draw": number, "seed": seed},
                dataclasses.replace(self.drawn(method, number), target=group, seed=seed),
            )
            for number in range(self.draws)
            for seed in self.all_seeds()
            for target, group in (self._targets | self._folds).items()
            for method in self.by_label
        ]

    def drawn(self, method: str, number: int) -> RunConfig:
        """Return the settings of a draw, without target and seed."""
        base, space = self._searched[method]
        return draw(base, number, seed=self.search_seed, space=space)

    def plan(self, folder: Path) -> Plan:
        """Return the runs; with halving, each of them pauses where the records say so."""
        plan = super().plan(folder)
        if not self.halving:
            return plan
        found = Results(plan.outcomes())
        until: dict[str, int | None] = {}
        for method in self.by_label:
            for target in self._targets:
                until |= _until(found.where(method=method, target=target))
        return Plan(folder, [dataclasses.replace(run, until=until[run.name]) for run in self.runs()])

    def report(self, results: Results) -> list[Section]:
        """Return the accuracies, the chosen draws with their settings, and the same table as DomainBed prints it."""
        found = self._draws(results)
        stated = self._provenance(results)
        head = f"Dataset: {stated.data}, model selection method: {TITLES[self.rule]}"
        accuracies = {method: draws.chosen_accuracies() for method, draws in found.items()}
        text = domainbed_text(head, list(self._targets), accuracies)
        latex = domainbed_latex(head, list(self._targets), accuracies)
        options = [self._options(method, draws) for method, draws in found.items()]
        return [
            self._accuracy_table(found, stated),
            *([self._class_scores_table(found, stated)] if results.unbalanced() else []),
            self._draws_table(found, stated),
            Text("options", "\n\n".join(["## Options for a new domain", *options])),
            Text("domainbed", f"## In DomainBed's format\n\n```text\n{text}\n```", {"domainbed.tex": latex}),
        ]

    def featured(self, results: Results) -> list[Outcome]:
        """Return the runs of the chosen draws."""
        chosen = {
            (method, target, draws.chosen(target))
            for method, draws in self._draws(results).items()
            for target in self._targets
        }
        names = ("method", "target", "draw")
        return [one for one in results.outcomes if tuple(one.labels[name] for name in names) in chosen]

    def _draws(self, results: Results) -> dict[str, Draws]:
        return {
            method: Draws(results.where(method=method), self._targets, self.rule, self.all_seeds())
            for method in self.by_label
        }

    def check(self) -> None:
        """Raise for an unknown method or setting, and for a range that cannot be searched."""
        check_changes([base for base, _ in self._searched.values()], self.search)
        self.runs()

    @functools.cached_property
    def _targets(self) -> dict[str, Group]:
        return group_labels(self.task.hold_out)

    @functools.cached_property
    def _folds(self) -> dict[str, Group]:
        """The targets, each together with one more domain, for leave-one-domain-out cross-validation."""
        if self.rule != "leave_one_out":
            return {}
        held = {frozenset((*group, name)) for group in self.task.hold_out for name in self.domains if name not in group}
        return group_labels([tuple(name for name in self.domains if name in one) for one in sorted(held, key=sorted)])

    @functools.cached_property
    def _searched(self) -> dict[str, tuple[RunConfig, dict[str, Search]]]:
        """The default settings and the search ranges of every method; what a user fixes is not searched."""
        return {label: self._search(text) for label, text in self.by_label.items()}

    def _search(self, text: str) -> tuple[RunConfig, dict[str, Search]]:
        oracle = {"selection": ORACLE, "target_part": "in"} if self.rule == "oracle" else {}
        base = with_settings(with_method(text, self.run_config(self.task.data)), oracle)
        _, fixed = method_and_settings(text)
        return base, {name: search for name, search in search_space(base, self.search).items() if name not in fixed}

    def _provenance(self, results: Results) -> Provenance:
        stated = results.provenance(data=data_label(self.task.data))
        selection = f"{TITLES[self.rule]}, of {self.draws} draws"
        return dataclasses.replace(stated, selection=selection, dispersion="standard error")

    def _accuracy_table(self, found: Mapping[str, Draws], stated: Provenance) -> Table:
        rows = (
            Row((method,), (*(draws.cell(target) for target in self._targets), draws.average()))
            for method, draws in found.items()
        )
        return Table(
            name="accuracy",
            title=f"Accuracy on held-out domains, chosen by {TITLES[self.rule]}",
            explanation="Accuracy in percent of the draw that the rule chooses for each column",
            provenance=stated,
            heads=("Method",),
            columns=tuple(Column(name, "up", 1) for name in (*self._targets, "Avg")),
            groups=(tuple(rows),),
        )

    def _class_scores_table(self, found: Mapping[str, Draws], stated: Provenance) -> Table:
        rows = (
            Row((method,), (draws.average(), *(draws.mean_of(target_class_score(name)) for name in CLASS_SCORES)))
            for method, draws in found.items()
        )
        return Table(
            name="class_scores",
            title="Unbalanced classes on held-out domains",
            explanation=f"Mean over the columns of the table above, of the same draws. {EXPLANATION}",
            provenance=stated,
            heads=("Method",),
            columns=(Column("Avg %", "up", 1), *CLASS_SCORES.values()),
            groups=(tuple(rows),),
        )

    def _draws_table(self, found: Mapping[str, Draws], stated: Provenance) -> Table:
        groups = (
            tuple(self._draw_row(method, draws, target) for target in self._targets) for method, draws in found.items()
        )
        names = ("Draw", "Score %", "Target %", "Draw 0", "Lowest", "Median", "Highest", "n draws", "Settings")
        return Table(
            name="draws",
            title=f"Chosen draws and spread over draws, chosen by {TITLES[self.rule]}",
            explanation=(
                "The chosen draw, its score by the rule and its accuracy on the target; the accuracy on the target of "
                "the defaults, and the lowest, median and highest of all finished draws, which the rule does not see"
                + (" except on another part of the target" if self.rule == "oracle" else "")
            ),
            provenance=dataclasses.replace(stated, seeds=()),
            heads=("Method", "Target"),
            columns=tuple(Column(name, "none", 0 if name in ("Draw", "n draws") else 1) for name in names),
            groups=tuple(groups),
            over_seeds=False,
        )

    def _draw_row(self, method: str, draws: Draws, target: str) -> Row:
        chosen, spread = draws.chosen(target), draws.spread(target)
        numbers: list[float | None] = [None] * 8
        if chosen is not None:
            values = sorted(spread.values())
            range_of_draws = (values[0], statistics.median(values), values[-1], len(values))
            score = 100 * draws.scores[target][chosen]
            numbers = [chosen, score, spread[chosen], spread.get(0), *range_of_draws]
        state = draws.state(target)
        cells = (
            dataclasses.replace(state, ours=None if number is None else Summary(number, None, self.seeds))
            for number in numbers
        )
        return Row((method, target), (*cells, Cell(text=self._settings(method, chosen))))

    def _settings(self, method: str, number: int | None) -> str:
        if number is None:
            return ""
        base, space = self._searched[method]
        values = drawn_values(base, number, seed=self.search_seed, space=space)
        return ", ".join(f"{name} {value}" for name, value in values.items()) or "defaults"

    def _options(self, method: str, draws: Draws) -> str:
        if draws.best is None:
            return f"{method}: no draw is finished for every target."
        command = shlex.join(train_command(self.drawn(method, draws.best)))
        return f"{method}: draw {draws.best} has the highest mean score over the targets.\n\n    {command}"


@dataclass(frozen=True, kw_only=True)
class SearchConfig(SearchOptions, HeldOut):
    """What to search, as a user states it; :meth:`study` finds the domains of the data."""

    data: str = ""
    """A folder domain/class/image, a table, an .npz file, a WILDS folder, or a name ('messi data list'); with settings
    in quotes, such as "patients.csv label=diagnosis domain=hospital"."""
    methods: tuple[str, ...] = METHODS
    """Methods, recipes or your own files; settings, such as those of a recipe or "erm steps=500", are not searched."""

    def study(self, progress: DataProgress | None = None) -> Tune:
        """Return the search with everything stated, so that it no longer depends on the domains of the data."""
        if not self.data:
            raise MessiError("A search requires data; name a data set, a folder or a file with --data.")
        progress = progress or LogProgress()
        config = self.run_config(find_data_set(self.data), self.target)
        study = Tune(
            task=find_task(config, self.hold_out, progress),
            domains=tuple(domain_names(config.data, progress)),
            methods=self.methods,
            **{one.name: getattr(self, one.name) for one in dataclasses.fields(SearchOptions)},
            **self.settings,
        )
        study.check()
        return study


def _until(outcomes: Sequence[Outcome]) -> dict[str, int | None]:
    """Return the step until which each run for one target is to be trained now, by its name."""
    draws: dict[int, list[Outcome]] = {}
    for outcome in outcomes:
        draws.setdefault(int(outcome.labels["draw"]), []).append(outcome)
    training = outcomes[0].run.config.resolved().training

    def score(number: int, step: int) -> float | None:
        scores = [_score_at(outcome, step, training.selection) for outcome in draws[number]]
        known = [one for one in scores if one is not None]
        return statistics.fmean(known) if len(known) == len(scores) else None

    until = train_until(sorted(draws), pauses(training.steps, training.evaluate_every, len(draws)), score)
    return {outcome.run.name: until[number] for number, runs in draws.items() for outcome in runs}


def _score_at(outcome: Outcome, step: int, selection: str) -> float | None:
    """Return the best validation score of a run up to a step; None if it has not got there."""
    records = [r for r in RunDir(outcome.path).read_records() if getattr(r, "step", 0) <= step]
    reached = outcome.state == "done" or any(getattr(r, "step", 0) == step and r.kind == "role" for r in records)
    if not reached:
        return FAILED if outcome.state == "failed" else None
    return select(records, selection).score


def train_command(config: RunConfig) -> list[str]:
    """Return the words of ``messi train`` for a config whose open settings are the protocol's."""
    data = config.data
    by_path = data.name in BY_PATH
    words = ["messi", "train", "--data", str(data.to_dict()["path"]) if by_path else data.name]
    words += ["--algorithm", config.algorithm.name]
    words += [] if config.protocol == "messi" else ["--protocol", config.protocol]
    for part in (data, *(getattr(config, name) for name in PARTS)):
        for one in dataclasses.fields(part):
            value = getattr(part, one.name)
            if value != one.default and not (by_path and part is data and one.name == "path"):
                words += _option(one.name.replace("_", "-"), value)
    return words


def _option(name: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no-{name}"]
    return [f"--{name}", *map(str, value if isinstance(value, tuple) else (value,))]
