"""The recipe on held-out targets, next to its own parts and to other methods: last stage of the recipe study.

Claim: none of the paper's. The rule, written before the first run: the recipe is fixed beforehand, from source domains
alone (``recipe_screening`` is the first stage), and nothing is chosen from these tables. Earlier trials had already
looked at the targets of PACS and of the digits, and the tables say so; ``recipe_confirmation`` uses data at which
nobody has looked. All runs of a study have the same schedule, and "+ averaging" is another method with the recipe's
whole training part, so one difference of the table shows what averaging gives, one what the experts add, and one what
the alignment adds.
Command: messi reproduce recipe --weights FOLDER, then --study digits --digits FOLDER, then --study few_digits, each
with its own --out
Cost: for every seed, 28 runs of 5,000 steps on PACS, 48 of 600 steps on digits, 6 of 300 steps on few digits.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from messi.algorithms.common.base import AlgorithmConfig
from messi.engine.config import RunConfig, TrainingConfig
from messi.engine.leave_one_out import runs_of
from messi.experiments.common.ablation import Ablation
from messi.experiments.common.comparison import Comparison
from messi.experiments.common.growth import BUDGET
from messi.experiments.common.methods import DEIT_TI, backbone_title, pretrained
from messi.experiments.common.recipe_arms import (
    COMPARISONS,
    EVALUATIONS,
    WHOLE,
    Arm,
    arms_on,
    check_arms,
    describe_recipe,
)
from messi.experiments.common.recipe_digits import DIGITS_BACKBONE, Digits, digits_data, digits_schedule
from messi.models.encoder import EncoderConfig
from messi.reports.plan_page import Section
from messi.reports.table import Column, Provenance, Row, Table
from messi.studies.common.results import Results
from messi.studies.common.tables import DIFFERENCE_COLUMNS, difference_cells, difference_explanation, learned
from messi.sweeps.plan import PlannedRun

Study = Literal["pacs", "digits", "few_digits"]
NUMBERS = (3, 5, 7, 9, 11, 13, 15, 17)
"""K, the numbers of source domains, as in ``domain_growth``."""


@dataclass(frozen=True, kw_only=True)
class Recipe(Ablation):
    """Accuracy on unseen domains, and what averaging, experts and alignment each contribute."""

    title: ClassVar[str] = "The recipe on held-out targets"
    claim: ClassVar[str] = "none; a study of our own."
    compared_with: ClassVar[str] = "ERM"
    cost: ClassVar[str] = "28 runs of 5,000 steps per seed on PACS"
    reduced: ClassVar[str] = (
        "5,000 embedded digits of Rotated-Colored MNIST instead of PACS, a small network without pretrained weights, "
        "no GMoE, which requires a transformer, 60 steps with 16 images per domain, one seed"
    )

    study: Study = "pacs"
    """Data: PACS, or Rotated-Colored MNIST with all digits or with the 5,000 embedded ones."""
    arms: tuple[Arm, ...] = ()
    """Only these arms; by default all that the network allows."""
    digits: str = "download"
    """MNIST for --study digits: 'download', an .npz file, or a folder with its four files."""
    backbone: str = DEIT_TI
    """A timm model, by default DeiT-Ti/16; the digits have their own."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_arms(self._backbone, self.arms)

    def runs(self) -> list[PlannedRun]:
        """Return a run for every seed, target (on digits: number of source domains) and arm."""
        return [
            PlannedRun(
                {"method": arm, "data": self._title, "target": target, "seed": seed},
                dataclasses.replace(task, algorithm=algorithm, training=training.filled_from(task.training), seed=seed),
            )
            for seed in self.all_seeds()
            for target, task in self._tasks().items()
            for arm, (algorithm, training) in self._arms().items()
        ]

    def report(self, results: Results) -> list[Section]:
        """Return accuracies, paired differences between arms, and what the models have learned."""
        over = "numbers of source domains" if self._study == "digits" else "targets"
        name, provenance = f"{self._name}_learned", self.provenance(results)
        models = learned(results, name=name, provenance=provenance, over=over)
        return [self._accuracies(results), self._differences(results), models]

    def provenance(self, results: Results) -> Provenance:
        """Return how the numbers were obtained."""
        held_out = {
            "digits": f"B = {BUDGET:,}, K = {NUMBERS[0]} to {NUMBERS[-1]}, target rot0-p0.5",
            "few_digits": "5,000 digits, K = 9, target rot0-p0.5",
        }.get(self._study, "every domain held out in turn")
        data = f"{self._title}, {held_out}; backbone {backbone_title(self._backbone)}"
        return results.provenance(data=data, reduced=self.reduced if self.small else "")

    @property
    def _study(self) -> Study:
        return "few_digits" if self.small else self.study

    @property
    def _name(self) -> str:
        return f"{self.name}_{self._study}"

    @property
    def _title(self) -> str:
        return "PACS" if self._study == "pacs" else "Rotated-Colored MNIST"

    @property
    def _backbone(self) -> str:
        return DIGITS_BACKBONE[self._study] if self._study in ("digits", "few_digits") else self.backbone

    def _arms(self) -> Mapping[Arm, tuple[AlgorithmConfig, TrainingConfig]]:
        return arms_on(self._backbone, self.arms)

    def _tasks(self) -> dict[str, RunConfig]:
        """Return what every arm is run on, with the schedule, by the label of the tables."""
        if self._study == "digits":
            return {f"K = {number}": self._digits(self._study, number) for number in NUMBERS}
        if self._study == "few_digits":
            task = self._digits(self._study, 9)
            return {task.target[0]: task}
        benchmark = self.benchmark("pacs")
        run = RunConfig(data=benchmark.config(self.path), encoder=pretrained(self.backbone, self.weights))
        steps = self.steps or run.resolved().training.steps
        schedule = TrainingConfig(steps=steps, evaluate_every=max(steps // EVALUATIONS, 1))
        tasks = runs_of(dataclasses.replace(run, training=schedule), list(benchmark.targets))
        return {"+".join(task.target): task for task in tasks}

    def _digits(self, study: Digits, number: int) -> RunConfig:
        data = digits_data(study, self.digits, number=number)
        return RunConfig(
            data=data,
            target=(data.test_domain,),
            encoder=EncoderConfig(backbone=self._backbone),
            training=digits_schedule(study, self.steps, small=self.small),
        )

    def _accuracies(self, results: Results) -> Table:
        targets = _targets(results)
        several = len(targets) > 1
        rows = []
        for arm in self._arms():
            cells = [results.cell(method=arm, target=target) for target in targets]
            mean = [results.cell(method=arm)] if several else []
            rows.append(Row((arm,), (*cells, *mean), arm == "MESSI, recipe"))
        return Table(
            name=self._name,
            title="Accuracy on held-out domains",
            explanation=self._explanation(results),
            provenance=self.provenance(results),
            heads=("Arm",),
            columns=tuple(Column(name, digits=2) for name in (*targets, *(["Mean"] if several else []))),
            groups=(tuple(rows),),
        )

    def _explanation(self, results: Results) -> str:
        every = results.outcomes[0].run.config.training.evaluate_every
        return (
            f"In percent. {describe_recipe()}. All runs are evaluated every {every} steps. Earlier trials had already "
            "looked at these targets. The recipe was fixed before, and nothing is chosen from this table"
        )

    def _differences(self, results: Results) -> Table:
        targets = _targets(results)
        groups = [[_difference(results, one) for one in COMPARISONS if self._includes(one)]]
        if self._study == "digits" and self._includes(WHOLE):
            groups.append([_difference(Results(results.where(target=target)), WHOLE, target) for target in targets])
        group = "number of source domains" if self._study == "digits" else "target"
        return Table(
            name=f"{self._name}_differences",
            title="Differences between arms in accuracy on the target",
            explanation=difference_explanation(group if len(targets) > 1 else ""),
            provenance=self.provenance(results),
            heads=("Effect of", "Arms"),
            columns=DIFFERENCE_COLUMNS,
            groups=tuple(tuple(rows) for rows in groups if rows),
            over_seeds=False,
        )

    def _includes(self, comparison: Comparison) -> bool:
        return {comparison.arm, comparison.baseline} <= self._arms().keys()


def _difference(results: Results, one: Comparison, target: str = "") -> Row:
    heads = (f"{one.effect}, {target}" if target else one.effect, f"{one.arm} minus {one.baseline}")
    return Row(heads, difference_cells(results, one.arm, one.baseline), one.arm == "MESSI, recipe")


def _targets(results: Results) -> list[str]:
    return list(dict.fromkeys(str(outcome.labels["target"]) for outcome in results.outcomes))
