"""The fixed recipe on data at whose targets nobody has looked: the confirmation of the recipe study.

Claim: none of the paper's. The data sets are named in docs/recipe_study.md before their first run; nothing is chosen
from these tables. Every domain of a set is held out in turn, and one difference shows what averaging gives, one what
the experts add, one what the alignment adds, and one all of it: on every set, with an interval over seeds, and as the
mean over sets, with an interval over sets.
Command: messi reproduce recipe_confirmation --data FOLDER/*.npz; images: --data FOLDER --weights FOLDER --steps N
Cost: for every seed and domain, five runs: on features 1 to 10 s of one CPU core each.
"""

import dataclasses
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from messi.core.config import OPEN, Bounds
from messi.data.datasets.common.base import DataConfig, ImageData
from messi.data.find import data_label
from messi.data.progress import LogProgress
from messi.engine.config import RunConfig, TrainingConfig
from messi.engine.leave_one_out import runs_of
from messi.experiments.common.base import Experiment
from messi.experiments.common.comparison import Comparison
from messi.experiments.common.methods import DEIT_TI, backbone_title, pretrained
from messi.experiments.common.recipe_arms import COMPARISONS, EVALUATIONS, Arm, all_arms, check_arms, describe_recipe
from messi.models.encoder import EncoderConfig
from messi.reports.plan_page import Section
from messi.reports.statistics import Summary, paired_difference
from messi.reports.table import Cell, Column, Provenance, Row, Table
from messi.studies.common.hold_out import TOGETHER, domain_names, find_data_set
from messi.studies.common.results import Results
from messi.studies.common.tables import DIFFERENCE_COLUMNS, difference_cells, difference_explanation, learned
from messi.sweeps.plan import PlannedRun

ALL, MEAN = "all data sets", "mean"


@dataclass(frozen=True, kw_only=True)
class RecipeConfirmation(Experiment):
    """The recipe and its parts on data sets that no choice has used."""

    title: ClassVar[str] = "Confirmation of the recipe"
    claim: ClassVar[str] = "none; a study of our own."
    cost: ClassVar[str] = "five runs per seed and domain; on features 1 to 10 s of one CPU core each"
    compared_with: ClassVar[str] = "ERM + averaging"
    reduced: ClassVar[str] = "60 steps, one seed"

    data: tuple[str, ...] = ("two_subsets",)
    """Data sets: features or images, anything that 'messi train --data' accepts."""
    arms: tuple[Arm, ...] = ("ERM", "ERM + averaging", "recipe without alignment", "MESSI, paper", "MESSI, recipe")
    """What is trained."""
    weights: str | None = None
    """Folder with the pretrained weights for images, BACKBONE.safetensors or BACKBONE.pth; else they are downloaded."""
    backbone: str = DEIT_TI
    """The network for images, a timm model; features have their own."""
    steps: Annotated[int, Bounds(minimum=1)] | None = None
    """Training steps; by default the protocol's."""

    def runs(self) -> list[PlannedRun]:
        """Return a run for every seed, data set, domain and arm."""
        arms = {arm: settings for arm, settings in all_arms().items() if arm in self.arms}
        return [
            PlannedRun(
                {"method": arm, "data": name, "target": TOGETHER.join(task.target) or "official", "seed": seed},
                dataclasses.replace(task, algorithm=algorithm, training=training.filled_from(task.training), seed=seed),
            )
            for name, tasks in self._tasks().items()
            for seed in self.all_seeds()
            for task in tasks
            for arm, (algorithm, training) in arms.items()
        ]

    def report(self, results: Results) -> list[Section]:
        """Return accuracies, paired differences between arms, and what the models have learned."""
        models = learned(results, name=f"{self.name}_learned", provenance=self._provenance(results))
        return [self._accuracies(results), self._differences(results), models]

    def _tasks(self) -> dict[str, list[RunConfig]]:
        """Return a config for every domain of every data set, by the name of the set."""
        found = {}
        for text in self.data:
            data = find_data_set(text)
            run = self._task(data)
            check_arms(str(run.resolved().encoder.backbone), self.arms)
            found[data_label(data)] = runs_of(run, domain_names(data, LogProgress()))
        return found

    def _task(self, data: DataConfig) -> RunConfig:
        """Return what every arm is run on, with the schedule: for features the protocol's own."""
        images = isinstance(data, ImageData)
        run = RunConfig(data=data, encoder=pretrained(self.backbone, self.weights) if images else EncoderConfig())
        steps = 60 if self.small else self.steps
        schedule = TrainingConfig(steps=steps or OPEN)
        if images:
            whole = steps or run.resolved().training.steps
            schedule = TrainingConfig(steps=whole, evaluate_every=max(whole // EVALUATIONS, 1))
        return dataclasses.replace(run, training=schedule)

    def _provenance(self, results: Results) -> Provenance:
        backbones = dict.fromkeys(str(outcome.run.config.resolved().encoder.backbone) for outcome in results.outcomes)
        data = f"every domain held out in turn; backbone {', '.join(map(backbone_title, backbones))}"
        return results.provenance(data=data, reduced=self.reduced if self.small else "")

    def _accuracies(self, results: Results) -> Table:
        arms, sets = _different(results, "method"), _different(results, "data")
        groups = []
        for data in sets:
            targets = _different(Results(results.where(data=data)), "target")
            rows = [Row((data, t), tuple(results.cell(method=a, data=data, target=t) for a in arms)) for t in targets]
            groups.append((*rows, Row((data, MEAN), tuple(results.cell(method=arm, data=data) for arm in arms), True)))
        if len(sets) > 1:
            groups.append((Row((ALL, MEAN), tuple(_over_sets(results, arm, sets) for arm in arms), True),))
        return Table(
            name=self.name,
            title="Accuracy on held-out domains",
            explanation=f"In percent. {describe_recipe()}. The recipe was fixed before, and nothing is chosen from "
            "this table",
            provenance=self._provenance(results),
            heads=("Data", "Held out"),
            columns=tuple(Column(arm, "none", 2) for arm in arms),
            groups=tuple(groups),
        )

    def _differences(self, results: Results) -> Table:
        sets, arms = _different(results, "data"), _different(results, "method")
        groups = []
        for one in COMPARISONS:
            if {one.arm, one.baseline} <= set(arms):
                by_set = {data: difference_cells(Results(results.where(data=data)), *one[1:]) for data in sets}
                rows = [Row((*_heads(one), data), cells) for data, cells in by_set.items()]
                if len(sets) > 1:
                    rows.append(Row((*_heads(one), ALL), _mean_difference(list(by_set.values())), True))
                groups.append(tuple(rows))
        over_sets = f"; for {ALL}, the mean and Student's interval are over data sets" if len(sets) > 1 else ""
        return Table(
            name=f"{self.name}_differences",
            title="Differences between arms in accuracy on the target",
            explanation=difference_explanation("target") + over_sets,
            provenance=self._provenance(results),
            heads=("Effect of", "Arms", "Data"),
            columns=DIFFERENCE_COLUMNS,
            groups=tuple(groups),
            over_seeds=False,
        )


def _heads(one: Comparison) -> tuple[str, str]:
    return one.effect, f"{one.arm} minus {one.baseline}"


def _over_sets(results: Results, arm: str, sets: Sequence[str]) -> Cell:
    means = [cell.ours.mean for cell in (results.cell(method=arm, data=data) for data in sets) if cell.ours]
    return Cell(Summary(statistics.fmean(means), None, len(sets)) if len(means) == len(sets) else None)


def _mean_difference(by_set: Sequence[tuple[Cell, ...]]) -> tuple[Cell, ...]:
    """Return the number of data sets, the mean of their differences and its interval; empty cells if a set has none."""
    means = {("", place): cells[1].ours.mean for place, cells in enumerate(by_set) if cells[1].ours}
    found = paired_difference(means, dict.fromkeys(means, 0.0), [""]) if len(means) == len(by_set) else None
    values = (len(means), found.mean if found else None, *((found and found.interval) or (None, None)))
    return tuple(Cell(None if value is None else Summary(value, None, len(means))) for value in values)


def _different(results: Results, label: str) -> list[str]:
    return list(dict.fromkeys(str(outcome.labels[label]) for outcome in results.outcomes))
