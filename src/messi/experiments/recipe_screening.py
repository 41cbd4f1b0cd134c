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
import itertools
import math
import statistics
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from messi.algorithms.messi import MESSI
from messi.data.datasets.rotated_colored_mnist import RotatedColoredMNIST
from messi.engine.config import RunConfig, TrainingConfig
from messi.experiments.common.ablation import Ablation
from messi.experiments.common.growth import BUDGET
from messi.experiments.common.methods import DEIT_TI, pretrained
from messi.experiments.common.plackett_burman import runs_of
from messi.experiments.common.recipe_digits import DIGITS_BACKBONE, digits_data, digits_schedule
from messi.models.encoder import EncoderConfig
from messi.reports.plan_page import Section
from messi.reports.statistics import Summary
from messi.reports.table import Cell, Column, Provenance, Row, Table
from messi.studies.common.results import Results, Value, source_accuracy, target_accuracy
from messi.sweeps.plan import PlannedRun

Study = Literal["pacs", "digits", "few_digits"]
Round = Literal[1, 2]
_REPEATED: dict[str, tuple[str, str]] = {
    "averaging": ("SWAD", "MA over the last three quarters"),
    "cost": ("plain OT", "scale-free and debiased"),
    "slot weight": ("sigmoids", "rho_i rho_j"),
    "sampling": ("with replacement", "class-balanced"),
    "load rule": ("none", "router bias, moving 5 at most"),
    "alignment": ("1 x", "3 x"),
}
ROUNDS: dict[Round, dict[str, tuple[str, str]]] = {
    1: {
        "averaging": _REPEATED["averaging"],
        "learning rate": ("the protocol's", "a third of it"),
        "layer decay": ("1", "0.75"),
        "linear probe": ("none", "a tenth of the steps"),
        "cost": _REPEATED["cost"],
        "slot weight": _REPEATED["slot weight"],
        "sampling": _REPEATED["sampling"],
        "load rule": _REPEATED["load rule"],
        "memory": ("none", "earlier batches"),
        "expert width": ("4 d", "d"),
        "alignment": _REPEATED["alignment"],
    },
    2: {
        **_REPEATED,
        "higher learning rate": ("the protocol's", "twice that"),
        "batch": ("32 per domain", "64 per domain"),
        "memory and weight": ("none", "earlier batches, weight for an equal gradient"),
        "dropout": ("none", "0.3 in the experts"),
        "ramp": ("none", "alignment ramped over a fifth of the steps"),
    },
}
"""By round and factor, the low and the high level; all low is MESSI without its regularisers, averaged by SWAD."""
PRETRAINED_ONLY = {"learning rate", "layer decay", "linear probe"}


def method(high: AbstractSet[str], *, batch: int, memory: int, steps: int) -> MESSI.Config:
    """Return MESSI with some factors at their high level, given the sizes of a batch and of a memory in examples."""
    options: dict[str, Any] = {}
    # The weighted mean of products of masses: the sigmoids' weights are 0.4 on average.
    weight = (1.0 if "cost" in high else 0.01) * (0.4 if "slot weight" in high else 1.0)
    weight *= 3.0 if "alignment" in high else 1.0
    if "memory and weight" in high:
        weight *= (batch + memory) / batch
    if "cost" in high:
        options |= {"scale_free": True, "debiased": True, "epsilon": 1.0, "epsilon_scale": "absolute", "iterations": 20}
    if "slot weight" in high:
        options |= {"slot_weight": "product", "reduction": "weighted"}
    if high & {"memory", "memory and weight"}:
        options |= {"memory": memory}
    by_factor: dict[str, dict[str, Any]] = {
        "load rule": {"load_rate": 5 / steps},
        "expert width": {"expert_ratio": 1.0},
        "dropout": {"expert_dropout": 0.3},
        "ramp": {"ssi_ramp": steps // 5},
    }
    for factor in by_factor.keys() & high:
        options |= by_factor[factor]
    return MESSI.Config(ssi_weight=weight, sparsity_weight=0.0, balance_weight=0.0, diversity_weight=0.0, **options)


def training(high: AbstractSet[str], base: TrainingConfig, *, learning_rate: float) -> TrainingConfig:
    """Return a training config with some factors at their high level, given the protocol's learning rate."""
    by_factor: dict[str, dict[str, Any]] = {
        "averaging": {"averaging": "ma", "average_from": 0.25},
        "learning rate": {"learning_rate": learning_rate / 3},
        "higher learning rate": {"learning_rate": learning_rate * 2},
        "layer decay": {"layer_decay": 0.75},
        "linear probe": {"probe_steps": base.steps // 10},
        "sampling": {"sampling": "class_balanced"},
        "batch": {"batch_per_domain": 2 * base.batch_per_domain},
    }
    options: dict[str, Any] = {"averaging": "swad"}
    for factor in by_factor.keys() & high:
        options |= by_factor[factor]
    return dataclasses.replace(base, **options)


@dataclass(frozen=True, kw_only=True)
class RecipeScreening(Ablation):
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
    study: Study = "pacs"
    """Data: PACS, Rotated-Colored MNIST with all digits, or with the 5,000 embedded ones."""
    digits: str = "download"
    """MNIST for --study digits: 'download', an .npz file, or a folder with its four files."""
    backbone: str = DEIT_TI
    """A timm model for PACS; the digits have their own."""

    def runs(self) -> list[PlannedRun]:
        """Return the twelve runs of every block, block by block."""
        return [
            PlannedRun(
                {"method": name, "target": "+".join(held_out), "seed": seed}, self._planned_config(high, held_out, seed)
            )
            for seed in self.all_seeds()
            for held_out in self._blocks
            for name, high in runs_of(self.factors, seed).items()
        ]

    def report(self, results: Results) -> list[Section]:
        """Return the effects of the factors, and the accuracy of every run."""
        return [self._effects(results), self._accuracies(results)]

    def provenance(self, results: Results) -> Provenance:
        """Return how the numbers were obtained."""
        data = {
            "pacs": "PACS, two domains held out together",
            "digits": f"Rotated-Colored MNIST, B = {BUDGET:,}, K = 9, one source held out",
            "few_digits": "Rotated-Colored MNIST, 5,000 digits, K = 9, one source held out",
        }[self._study]
        return results.provenance(data=data, reduced=self.reduced if self.small else "")

    @property
    def _study(self) -> Study:
        return "few_digits" if self.small else self.study

    @property
    def factors(self) -> dict[str, tuple[str, str]]:
        """The low and the high level of every factor."""
        return ROUNDS[self.round]

    @property
    def _applied(self) -> list[str]:
        return [name for name in self.factors if self._study == "pacs" or name not in PRETRAINED_ONLY]

    @property
    def _blocks(self) -> list[tuple[str, ...]]:
        if self._study == "pacs":
            return list(itertools.combinations(self.benchmark("pacs").targets, 2))
        sources = RotatedColoredMNIST().source_domains
        return [(name,) for name in (sources[:1] if self.small else sources)]

    def _planned_config(self, high: AbstractSet[str], held_out: tuple[str, ...], seed: int) -> RunConfig:
        high = high & set(self._applied)
        if self._study == "pacs":
            base = TrainingConfig(steps=self.steps or 5000, evaluate_every=100, batch_per_domain=32)
            settings = training(high, base, learning_rate=3e-5)
            return RunConfig(
                data=self.benchmark("pacs").config(self.path),
                target=held_out,
                algorithm=method(high, batch=2 * settings.batch_per_domain, memory=128, steps=settings.steps),
                encoder=pretrained(self.backbone, self.weights),
                training=settings,
                seed=seed,
            )
        data = digits_data(self._study, self.digits)
        base = digits_schedule(self._study, self.steps, small=self.small)
        settings = training(high, base, learning_rate=1e-3)
        sources = tuple(name for name in data.source_domains if name not in held_out)
        batch, memory = (len(sources) * one.batch_per_domain for one in (settings, base))
        return RunConfig(
            data=data,
            target=held_out,
            sources=sources,
            algorithm=method(high, batch=batch, memory=memory, steps=base.steps),
            encoder=EncoderConfig(backbone=DIGITS_BACKBONE[self._study]),
            training=settings,
            seed=seed,
        )

    def _effects(self, results: Results) -> Table:
        blocks = len(self._blocks) * len(self.all_seeds())
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
            name=f"recipe_screening_{self._study}_{self.round}",
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
        blocks = ["+".join(block) for block in self._blocks]
        rows = tuple(
            Row(
                (name, ", ".join(sorted(high & set(self._applied))) or "none"),
                tuple(results.cell(method=name, target=block) for block in blocks),
            )
            for seed in self.all_seeds()[:2]
            for name, high in runs_of(self.factors, seed).items()
        )
        return Table(
            name=f"recipe_screening_{self._study}_{self.round}_runs",
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
