"""What the stages of the recipe study that use source data alone share: blocks of held-out domains, and settings.

On PACS a block holds out two of the four domains, so that either may be the target and the other one a source; on
digits it holds out one source, while the target environment is never used.
"""

import dataclasses
import itertools
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Literal

from messi.algorithms.messi import MESSI
from messi.data.datasets.rotated_colored_mnist import RotatedColoredMNIST
from messi.engine.config import RunConfig, TrainingConfig
from messi.experiments.common.ablation import Ablation
from messi.experiments.common.growth import BUDGET
from messi.experiments.common.methods import DEIT_TI, pretrained
from messi.experiments.common.recipe_digits import DIGITS_BACKBONE, digits_data, digits_schedule
from messi.models.encoder import EncoderConfig
from messi.reports.table import Provenance
from messi.studies.common.results import Results

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
class RecipeBlocks(Ablation):
    """Runs on blocks of held-out source domains."""

    study: Study = "pacs"
    """Data: PACS, Rotated-Colored MNIST with all digits, or with the 5,000 embedded ones."""
    digits: str = "download"
    """MNIST for --study digits: 'download', an .npz file, or a folder with its four files."""
    backbone: str = DEIT_TI
    """A timm model for PACS; the digits have their own."""

    def provenance(self, results: Results) -> Provenance:
        """Return how the numbers were obtained."""
        data = {
            "pacs": "PACS, two domains held out together",
            "digits": f"Rotated-Colored MNIST, B = {BUDGET:,}, K = 9, one source held out",
            "few_digits": "Rotated-Colored MNIST, 5,000 digits, K = 9, one source held out",
        }[self.used]
        return results.provenance(data=data, reduced=self.reduced if self.small else "")

    @property
    def used(self) -> Study:
        """The data; the small scale has its own."""
        return "few_digits" if self.small else self.study

    @property
    def blocks(self) -> list[tuple[str, ...]]:
        """The domains that are held out together."""
        if self.used == "pacs":
            return list(itertools.combinations(self.benchmark("pacs").targets, 2))
        sources = RotatedColoredMNIST().source_domains
        return [(name,) for name in (sources[:1] if self.small else sources)]

    def block_config(self, high: AbstractSet[str], held_out: tuple[str, ...], seed: int) -> RunConfig:
        """Return MESSI on a block with some factors at their high level."""
        if self.used == "pacs":
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
        data = digits_data(self.used, self.digits)
        base = digits_schedule(self.used, self.steps, small=self.small)
        settings = training(high, base, learning_rate=1e-3)
        sources = tuple(name for name in data.source_domains if name not in held_out)
        batch, memory = (len(sources) * one.batch_per_domain for one in (settings, base))
        return RunConfig(
            data=data,
            target=held_out,
            sources=sources,
            algorithm=method(high, batch=batch, memory=memory, steps=base.steps),
            encoder=EncoderConfig(backbone=DIGITS_BACKBONE[self.used]),
            training=settings,
            seed=seed,
        )
