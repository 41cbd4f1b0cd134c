"""The combinations that the screening found, as wholes, on source domains left out: second stage of the recipe study.

Claim: none of the paper's. The arms are the base (MESSI without its regularisers, averaged by SWAD), the combination of
settings that the screening found for the kind of network, and ERM with exactly the same training as either. The blocks
are those of the screening, with other seeds.

The rule, written before the first run: the combination replaces the base if it is better by more than the standard
error of the paired difference, on digits in both sets. If ERM with the training of the chosen one has the higher mean,
on digits in both sets, ERM with that training is the recipe.
Command: messi reproduce recipe_choice --weights FOLDER, then --study digits --digits FOLDER, then --study few_digits
Cost: for every seed, 24 runs of 5,000 steps on PACS, 36 of 600 steps on digits, 36 of 300 steps on few digits.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from messi.algorithms.erm import ERM
from messi.engine.config import RunConfig
from messi.experiments.common.comparison import Comparison, paired_cells
from messi.experiments.common.recipe_blocks import RecipeBlocks, Study
from messi.reports.plan_page import Section
from messi.reports.table import Column, Row, Table
from messi.studies.common.base import Repetitions
from messi.studies.common.results import Results, source_accuracy, target_accuracy
from messi.sweeps.plan import PlannedRun

FINE_TUNED = frozenset({"averaging", "cost", "higher learning rate"})
"""What the screening found on PACS."""
FROM_SCRATCH = frozenset({"batch", "memory and weight", "ramp"})
"""What it found on both sets of digits."""
COMBINATIONS: Mapping[Study, frozenset[str]] = {"pacs": FINE_TUNED, "digits": FROM_SCRATCH, "few_digits": FROM_SCRATCH}
_FIRST_SEED = 1
"""The screening used seed 0."""


COMPARISONS = (
    Comparison("settings of MESSI and of training", "combination", "base"),
    *(Comparison(f"experts and alignment, {whole}", whole, f"{whole}, ERM") for whole in ("base", "combination")),
)


@dataclass(frozen=True, kw_only=True)
class RecipeChoice(RecipeBlocks):
    """The combination found by the screening against the base, and ERM with the training of either."""

    title: ClassVar[str] = "Choice of the recipe by source domains left out"
    claim: ClassVar[str] = "none; a study of our own."
    cost: ClassVar[str] = "24 runs of 5,000 steps per seed on PACS"
    reduced: ClassVar[str] = (
        "5,000 embedded digits of Rotated-Colored MNIST instead of PACS, one held-out source domain, a small network "
        "without pretrained weights, 60 steps with 16 images per domain, one seed"
    )

    seeds: Repetitions = 2
    """Number of repetitions, with seeds 1, 2, ...; the screening used seed 0."""

    def all_seeds(self) -> range:
        """Return seeds that the screening did not use."""
        return range(_FIRST_SEED, _FIRST_SEED + super().all_seeds().stop)

    def runs(self) -> list[PlannedRun]:
        """Return a run for every seed, block and arm."""
        return [
            PlannedRun({"method": arm, "target": "+".join(held_out), "seed": seed}, config)
            for seed in self.all_seeds()
            for held_out in self.blocks
            for arm, config in self._arms(held_out, seed).items()
        ]

    def report(self, results: Results) -> list[Section]:
        """Return the accuracy of every arm, and the differences."""
        return [self._accuracies(results), self._differences(results)]

    def _arms(self, held_out: tuple[str, ...], seed: int) -> dict[str, RunConfig]:
        arms: dict[str, RunConfig] = {}
        for name, high in (("base", frozenset[str]()), ("combination", COMBINATIONS[self.used])):
            config = self.block_config(high, held_out, seed)
            arms |= {name: config, f"{name}, ERM": dataclasses.replace(config, algorithm=ERM.Config())}
        return arms

    def _accuracies(self, results: Results) -> Table:
        blocks = ["+".join(block) for block in self.blocks]
        arms = list(dict.fromkeys(str(outcome.labels["method"]) for outcome in results.outcomes))
        rows = tuple(
            Row(
                (arm,),
                (
                    *(results.cell(method=arm, target=block) for block in blocks),
                    results.cell(method=arm),
                    results.cell(value=source_accuracy, method=arm),
                ),
            )
            for arm in arms
        )
        return Table(
            name=f"recipe_choice_{self.used}",
            title="Accuracy on the held-out domains",
            explanation=f"The combination: {', '.join(sorted(COMBINATIONS[self.used]))}",
            provenance=self.provenance(results),
            heads=("Arm",),
            columns=tuple(Column(name, digits=2) for name in (*blocks, "Mean", "Validation")),
            groups=(rows,),
        )

    def _differences(self, results: Results) -> Table:
        return Table(
            name=f"recipe_choice_{self.used}_differences",
            title="Differences, paired by block and seed",
            explanation="In percentage points: mean over blocks and seeds and its standard error, on the held-out "
            "domains and on the validation part of the sources",
            provenance=self.provenance(results),
            heads=("Effect", "Difference"),
            columns=tuple(
                Column(name, "none", digits)
                for on in ("held out", "validation")
                for name, digits in ((on, 2), ("s.e.", 2), ("n pairs", 0))
            ),
            groups=(
                tuple(
                    Row(
                        (one.effect, f"{one.arm} minus {one.baseline}"),
                        (*paired_cells(results, one, target_accuracy), *paired_cells(results, one, source_accuracy)),
                    )
                    for one in COMPARISONS
                ),
            ),
            over_seeds=False,
        )
