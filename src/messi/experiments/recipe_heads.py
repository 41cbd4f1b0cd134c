"""The recipes where all that trains starts from random weights: networks for features, and heads above frozen encoders.

Claim: none of the paper's. The recipe study chose ERM averaged by SWAD for small networks on digits. This experiment
asks which recipe is best on features and with ``--tune head``. Two domains are held out together, so that for either as
the target the other one is a source domain left out; every domain is in two blocks. The rule, written before the first
run, is in docs/recipe_study.md.
Command: messi reproduce recipe_heads --data FOLDER/*.npz, then --data PACS --weights FOLDER with its own --out
Cost: for every seed and data set, a run for every recipe and domain; 1 to 10 s of one CPU core each, 300 steps on
features and 1,000 above a frozen encoder, whose features are computed first.
"""

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from messi.data.datasets.common.base import ImageData
from messi.data.find import data_label
from messi.data.progress import LogProgress
from messi.engine.config import RunConfig
from messi.engine.recipes import RECIPES
from messi.experiments.common.base import Experiment
from messi.experiments.common.comparison import Comparison, mean_cells, paired_differences
from messi.experiments.common.methods import DEIT_TI, pretrained
from messi.models.encoder import EncoderConfig
from messi.reports.plan_page import Section
from messi.reports.statistics import Summary
from messi.reports.table import Cell, Column, Provenance, Row, Table
from messi.studies.common.hold_out import TOGETHER, Group, domain_names, find_data_set
from messi.studies.common.results import Results, Value, source_accuracy, target_accuracy
from messi.sweeps.plan import PlannedRun

BASELINE = "erm_swad"
"""The recipe that stays unless another one is better."""
ALL = "mean over data sets"


@dataclass(frozen=True, kw_only=True)
class RecipeHeads(Experiment):
    """Every recipe on features or above a frozen encoder, on source domains left out."""

    title: ClassVar[str] = "Recipes on features and above frozen encoders"
    claim: ClassVar[str] = "none; a study of our own."
    cost: ClassVar[str] = "four runs per seed, data set and domain; 1 to 10 s of one CPU core each"
    compared_with: ClassVar[str] = BASELINE
    reduced: ClassVar[str] = "60 steps, one seed"

    data: tuple[str, ...] = ("two_subsets",)
    """Features, or image folders, whose encoder is then frozen; what 'messi train --data' accepts."""
    weights: str | None = None
    """Folder with the pretrained weights for images, BACKBONE.safetensors or BACKBONE.pth; else they are downloaded."""
    backbone: str = DEIT_TI
    """The frozen encoder of images, a timm model."""
    learning_rates: tuple[float, ...] = ()
    """Learning rates to try; by default the protocol's alone."""

    def runs(self) -> list[PlannedRun]:
        """Return a run for every seed, data set, block of held-out domains, and recipe with a learning rate."""
        return [
            PlannedRun(
                {"method": method, "data": name, "target": TOGETHER.join(block), "seed": seed},
                self._config(task, method, block, seed),
            )
            for seed in self.all_seeds()
            for name, (task, blocks) in self._tasks().items()
            for block in blocks
            for method in self._methods()
        ]

    def report(self, results: Results) -> list[Section]:
        """Return the accuracy of every recipe on every data set, and the differences to the baseline."""
        return [
            self._accuracies(results, "accuracy", "Accuracy on the held-out domains", target_accuracy),
            self._accuracies(results, "validation", "Accuracy on the validation part of the sources", source_accuracy),
            self._differences(results),
        ]

    def _tasks(self) -> dict[str, tuple[RunConfig, list[Group]]]:
        """Return a config and the blocks of held-out domains of every data set, by its name."""
        tasks = {}
        for text in self.data:
            data = find_data_set(text)
            head = dataclasses.replace(pretrained(self.backbone, self.weights), tune="head")
            encoder = head if isinstance(data, ImageData) else EncoderConfig()
            tasks[data_label(data)] = RunConfig(data=data, encoder=encoder), ring(domain_names(data, LogProgress()))
        return tasks

    def _methods(self) -> dict[str, tuple[str, float | None]]:
        """Return the recipes by the names that tables use, each with its learning rate; None is the protocol's."""
        if not self.learning_rates:
            return {recipe: (recipe, None) for recipe in RECIPES}
        return {_label(recipe, rate): (recipe, rate) for rate in self.learning_rates for recipe in RECIPES}

    def _config(self, task: RunConfig, method: str, block: Group, seed: int) -> RunConfig:
        recipe, rate = self._methods()[method]
        training = RECIPES[recipe].training
        if rate is not None:
            training = dataclasses.replace(training, learning_rate=rate)
        if self.small:
            training = dataclasses.replace(training, steps=60, evaluate_every=10)
        return dataclasses.replace(
            task, target=block, algorithm=RECIPES[recipe].algorithm, training=training, seed=seed
        )

    def _effects(self) -> list[tuple[str, str, list[Comparison]]]:
        """Return the differences to show, each pooled over comparisons: of learning rates, then of recipes."""
        rates: tuple[float | None, ...] = self.learning_rates or (None,)
        of_rates = [
            (
                "learning rate",
                f"{rate:g} minus {rates[0]:g}",
                [Comparison("", _label(recipe, rate), _label(recipe, rates[0])) for recipe in RECIPES],
            )
            for rate in rates[1:]
        ]
        of_recipes = [Comparison("recipe", _label(r, rate), _label(BASELINE, rate)) for rate in rates for r in RECIPES]
        return of_rates + [
            (one.effect, f"{one.arm} minus {one.baseline}", [one]) for one in of_recipes if one.arm != one.baseline
        ]

    def _provenance(self, results: Results) -> Provenance:
        stated = results.provenance(
            data="two domains held out together, every domain twice", reduced=self.reduced if self.small else ""
        )
        steps = dict.fromkeys(outcome.run.config.resolved().training.steps for outcome in results.outcomes)
        return dataclasses.replace(stated, protocol=f"messi, {', '.join(f'{number:,}' for number in steps)} steps")

    def _accuracies(self, results: Results, name: str, title: str, value: Value) -> Table:
        sets = list(self._tasks())
        rows = []
        for method in self._methods():
            shown = [results.cell(value=value, method=method, data=data) for data in sets]
            means = [cell.ours.mean for cell in shown if cell.ours]
            whole = Cell(Summary(statistics.fmean(means), None, len(sets)) if len(means) == len(sets) else None)
            rows.append(Row((method,), (*shown, *([whole] if len(sets) > 1 else [])), method == BASELINE))
        return Table(
            name=f"recipe_heads_{name}",
            title=title,
            explanation="Mean over the blocks of a data set, in percent",
            provenance=self._provenance(results),
            heads=("Recipe",),
            columns=tuple(Column(name, digits=2) for name in (*sets, *(["Mean"] if len(sets) > 1 else []))),
            groups=(tuple(rows),),
        )

    def _differences(self, results: Results) -> Table:
        sets = list(self._tasks())
        groups = []
        for effect, name, pooled in self._effects():
            found = {
                on: [[d for one in pooled for d in paired_differences(results, one, value, data=data)] for data in sets]
                for on, value in VALUES.items()
            }
            by_set = [[cell for values in found.values() for cell in mean_cells(values[i])] for i in range(len(sets))]
            rows = [Row((effect, name, data), tuple(by_set[i])) for i, data in enumerate(sets)]
            if len(sets) > 1:
                means = [[statistics.fmean(one) for one in values if one] for values in found.values()]
                rows.append(Row((effect, name, ALL), tuple(cell for values in means for cell in mean_cells(values))))
            groups.append(tuple(rows))
        return Table(
            name="recipe_heads_differences",
            title="Differences, paired by block and seed",
            explanation="In percentage points, with the standard error over blocks and seeds, for learning rates also "
            "over recipes; that of the mean over data sets is over data sets",
            provenance=self._provenance(results),
            heads=("Effect", "Difference", "Data"),
            columns=tuple(
                Column(f"{name}, {on}", "none", digits)
                for on in VALUES
                for name, digits in (("mean", 2), ("s.e.", 2), ("n", 0))
            ),
            groups=tuple(groups),
            over_seeds=False,
        )


VALUES: Mapping[str, Value] = {"held out": target_accuracy, "validation": source_accuracy}


def ring(domains: Sequence[str]) -> list[Group]:
    """Return pairs of neighbours in a ring, so that every domain is in two of them; a set of three has all pairs."""
    number = len(domains)
    return list(dict.fromkeys(tuple(sorted((domains[i], domains[(i + 1) % number]))) for i in range(number)))


def _label(recipe: str, rate: float | None) -> str:
    return recipe if rate is None else f"{recipe} learning_rate={rate:g}"
