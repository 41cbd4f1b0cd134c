"""Which settings make MESSI better on unseen domains, found with source data alone: first stage of the recipe study.

Claim: none of the paper's. A block of twelve runs measures eleven factors at once (``common/plackett_burman.py``). It
leaves source domains out: on PACS two of the four domains, so that either may be the target and the other one a source;
on digits each source in turn, while the target environment is never used.

The rule, written before the first run: the recipe takes the high level of a factor if its mean effect over the blocks
exceeds its standard error on PACS and is not below minus its standard error on either set of digits; otherwise it keeps
the low level. Factors that only make sense for pretrained networks are left out on digits: their columns change nothing
there and show how large an effect of pure chance is.

The first round was stopped after a few blocks: slower fine-tuning (a lower learning rate, layer decay, a linear probe)
and narrow experts cost 1 to 7 points each, which hides everything else. The second round, planned before any of its
runs, keeps these four at their low level, repeats the others and adds new ones; the rule is applied to it.
Command: messi reproduce recipe_screening --weights FOLDER, then --study digits --digits FOLDER, then --study few_digits
Cost: for every seed, 72 runs of 5,000 steps on PACS, 108 of 600 steps on digits, 108 of 300 steps on few digits.
"""

import dataclasses
import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from messi.experiments.common.plackett_burman import runs_of
from messi.experiments.common.recipe_blocks import PRETRAINED_ONLY, ROUNDS, RecipeBlocks, Round
from messi.reports.plan_page import Section
from messi.reports.statistics import Summary
from messi.reports.table import Cell, Column, Row, Table
from messi.studies.common.results import Results, Value, source_accuracy, target_accuracy
from messi.sweeps.plan import PlannedRun


@dataclass(frozen=True, kw_only=True)
class RecipeScreening(RecipeBlocks):
    """Effects of eleven settings on held-out source domains."""

    title: ClassVar[str] = "Screening of settings by source domains left out"
    claim: ClassVar[str] = "none; a study of our own."
    cost: ClassVar[str] = "72 runs of 5,000 steps per seed on PACS"
    reduced: ClassVar[str] = (
        "5,000 embedded digits of Rotated-Colored MNIST instead of PACS, one held-out source domain, a small network "
        "without pretrained weights, 60 steps with 16 images per domain, one seed"
    )

    round: Round = 2
    """Round of the screening."""

    def runs(self) -> list[PlannedRun]:
        """Return the twelve runs of every block, block by block."""
        return [
            PlannedRun(
                {"method": name, "target": "+".join(held_out), "seed": seed},
                self.block_config(high & set(self._applied), held_out, seed),
            )
            for seed in self.all_seeds()
            for held_out in self.blocks
            for name, high in runs_of(self.factors, seed).items()
        ]

    def report(self, results: Results) -> list[Section]:
        """Return the effects of the factors, and the accuracy of every run."""
        return [self._effects(results), self._accuracies(results)]

    @property
    def factors(self) -> dict[str, tuple[str, str]]:
        """The low and the high level of every factor."""
        return ROUNDS[self.round]

    @property
    def _applied(self) -> list[str]:
        return [name for name in self.factors if self.used == "pacs" or name not in PRETRAINED_ONLY]

    def _effects(self, results: Results) -> Table:
        blocks = len(self.blocks) * len(self.all_seeds())
        rows = tuple(
            Row(
                (factor, *(levels if factor in self._applied else ("nothing", "nothing"))),
                tuple(
                    cell
                    for value in (target_accuracy, source_accuracy)
                    for cell in _effect_cells(effects(results, self.factors, factor, value), blocks)
                ),
            )
            for factor, levels in self.factors.items()
        )
        return Table(
            name=f"recipe_screening_{self.used}_{self.round}",
            title=f"Round {self.round}: effects on accuracy, high level minus low level",
            explanation="In percentage points: mean over the complete blocks (held-out domains and seed) and its "
            "standard error over blocks, on the held-out domains and on the validation part of the sources",
            provenance=self.provenance(results),
            heads=("Factor", "Low", "High"),
            columns=tuple(
                Column(name, "none", digits)
                for on in ("held out", "validation")
                for name, digits in ((f"{on}: effect", 2), ("s.e.", 2), ("blocks", 0))
            ),
            groups=(rows,),
            over_seeds=False,
        )

    def _accuracies(self, results: Results) -> Table:
        blocks = ["+".join(block) for block in self.blocks]
        rows = tuple(
            Row(
                (name, ", ".join(sorted(high & set(self._applied))) or "none"),
                tuple(results.cell(method=name, target=block) for block in blocks),
            )
            for seed in self.all_seeds()[:2]
            for name, high in runs_of(self.factors, seed).items()
        )
        return Table(
            name=f"recipe_screening_{self.used}_{self.round}_runs",
            title="Accuracy on the held-out domains",
            provenance=self.provenance(results),
            heads=("Run", "High factors"),
            columns=tuple(Column(block, digits=2) for block in blocks),
            groups=(rows,),
        )


def effects(results: Results, factors: Iterable[str], factor: str, value: Value = target_accuracy) -> list[float]:
    """Return the effect of a factor in every complete block: the mean of the high runs minus the mean of the others."""
    found = []
    for target, seed in dict.fromkeys((str(o.labels["target"]), int(o.labels["seed"])) for o in results.outcomes):
        runs = runs_of(factors, seed)
        done = [outcome for outcome in results.where(target=target, seed=seed) if outcome.state == "done"]
        high = [value(outcome) for outcome in done if factor in runs[str(outcome.labels["method"])]]
        low = [value(outcome) for outcome in done if factor not in runs[str(outcome.labels["method"])]]
        if len(high) == len(low) == len(runs) // 2:
            found.append(statistics.fmean(high) - statistics.fmean(low))
    return found


def _effect_cells(found: list[float], blocks: int) -> tuple[Cell, ...]:
    n = len(found)
    error = statistics.stdev(found) / math.sqrt(n) if n > 1 else None
    values = (statistics.fmean(found) if found else None, error, n)
    state = Cell(state="done" if n == blocks else "incomplete")
    return tuple(
        dataclasses.replace(state, ours=None if value is None else Summary(value, None, n)) for value in values
    )
