"""Protocols by name: the settings behind the published results of different papers.

A protocol states every setting of data, schedule and selection that affects a result. A run names its protocol and
reports the settings in which it deviates. Sources: the appendix of the MESSI paper; DomainBed's train.py and
datasets.py; SWAD's README and datasets; GMoE's hparams_registry.py. All protocols select by accuracy on source
validation data, except on iWildCam: there the MESSI paper follows WILDS, which selects by macro F1 on the official
validation data of unseen cameras. DomainBed, SWAD and GMoE count steps from 0 and also evaluate after the first one;
that step is never selected and is not evaluated here.
"""

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from messi.core.errors import unknown_name
from messi.engine.training_config import TrainingConfig
from messi.models.encoder import EncoderKind

ProtocolName = Literal["messi", "domainbed", "swad", "gmoe"]

FEATURES = TrainingConfig(
    steps=300, evaluate_every=20, batch_per_domain=32, domains_per_batch=8, learning_rate=2e-3, weight_decay=0.0
)
"""The same for all sizes of data: selection by validation stops early where data are few (docs/feature_study.md). A
batch has at most eight domains: a table may have hundreds, such as patients, whose pairs grow with their square."""


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """The settings of a protocol; ``by_data`` takes precedence over ``default``, and those of the encoder over both.

    The papers train whole networks; ``HEAD`` and ``LORA_RATE`` adapt their settings if only a part of an encoder does.
    """

    default: TrainingConfig
    """States every setting that a protocol may state, except the augmentation, which depends on the data set."""
    by_data: Mapping[str, TrainingConfig]
    """Settings for single data sets, by name."""
    small_images: TrainingConfig
    """Settings for the small encoders."""
    features: TrainingConfig = FEATURES
    """Settings for the encoder of features; no paper states any."""

    def training(self, data: str, kind: EncoderKind) -> TrainingConfig:
        """Return the settings for a data set and a kind of encoder."""
        by_kind = {"small": self.small_images, "features": self.features, "frozen": HEAD}
        special = self.by_data.get(data, TrainingConfig())
        if kind == "frozen":
            special = special.filled_from(HEAD_SCHEDULE)
        stated = by_kind.get(kind, TrainingConfig()).filled_from(special).filled_from(self.default)
        if kind == "low rank":
            return dataclasses.replace(stated, learning_rate=LORA_RATE * stated.learning_rate)
        return stated


HEAD = TrainingConfig(learning_rate=1e-3, validation_augmentation=False)
"""Takes precedence if the encoder is frozen; chosen by source validation on PACS (docs/tuning_modes.md)."""
HEAD_SCHEDULE = TrainingConfig(steps=1000, evaluate_every=100)
"""The schedule of data sets that have none of their own, if the encoder is frozen."""
LORA_RATE = 10
"""How many times the learning rate of full fine-tuning low-rank changes need (Biderman et al., 2024)."""


_DOMAINBED = TrainingConfig(
    split="domainbed",
    validation_fraction=0.2,
    validation_augmentation=True,
    target_part="in",
    selection="source_val",
    sampling="replacement",
    domains_per_batch=None,
    batch_per_domain=32,
    steps=5001,
    evaluate_every=300,
    learning_rate=5e-5,
    weight_decay=0.0,
    sagm_alpha=1e-3,  # SAGM's own value for data sets with few classes; with many it uses half
    swad_tolerance=0.3,  # SWAD's own value, like the one for VLCS
)
PROTOCOLS: Mapping[ProtocolName, Protocol] = {
    "messi": Protocol(
        default=dataclasses.replace(
            _DOMAINBED,
            split="stratified",
            validation_augmentation=False,
            target_part="all",
            steps=5000,
            evaluate_every=200,
            learning_rate=3e-5,
            weight_decay=1e-6,
        ),
        by_data={
            "vlcs": TrainingConfig(swad_tolerance=0.2),
            "office_home": TrainingConfig(steps=10_000, learning_rate=1e-5, sagm_alpha=5e-4),
            "terra_incognita": TrainingConfig(steps=10_000, learning_rate=5e-5, weight_decay=1e-4),
            "domain_net": TrainingConfig(
                steps=15_000, evaluate_every=500, learning_rate=5e-5, weight_decay=0.0, sagm_alpha=5e-4
            ),
            "iwildcam": TrainingConfig(
                split="official",
                selection="unseen_val_macro_f1",
                sampling="epochs",
                domains_per_batch=4,
                batch_per_domain=8,
                steps=150_000,
                evaluate_every=5000,
                weight_decay=0.0,
            ),
        },
        small_images=TrainingConfig(learning_rate=1e-3),
    ),
    "domainbed": Protocol(
        default=_DOMAINBED,
        by_data={
            "vlcs": TrainingConfig(swad_tolerance=0.2),
            "office_home": TrainingConfig(sagm_alpha=5e-4),
            "domain_net": TrainingConfig(evaluate_every=1000, sagm_alpha=5e-4),
        },
        small_images=TrainingConfig(batch_per_domain=64, evaluate_every=100, learning_rate=1e-3),
    ),
    "swad": Protocol(
        default=dataclasses.replace(_DOMAINBED, validation_augmentation=False, evaluate_every=100),
        by_data={
            "vlcs": TrainingConfig(evaluate_every=50, swad_tolerance=0.2),
            "office_home": TrainingConfig(sagm_alpha=5e-4),
            "domain_net": TrainingConfig(steps=15_001, evaluate_every=500, sagm_alpha=5e-4),
        },
        small_images=TrainingConfig(batch_per_domain=64, learning_rate=1e-3),
    ),
    "gmoe": Protocol(
        default=dataclasses.replace(_DOMAINBED, learning_rate=3e-5, weight_decay=1e-6),
        by_data={
            "vlcs": TrainingConfig(swad_tolerance=0.2),
            "office_home": TrainingConfig(learning_rate=1e-5, sagm_alpha=5e-4),
            "terra_incognita": TrainingConfig(learning_rate=5e-5, weight_decay=1e-4),
            "domain_net": TrainingConfig(
                steps=15_001, evaluate_every=500, learning_rate=5e-5, weight_decay=0.0, sagm_alpha=5e-4
            ),
        },
        small_images=TrainingConfig(batch_per_domain=64, evaluate_every=100, learning_rate=1e-3, weight_decay=0.0),
    ),
}


@functools.cache  # a plan resolves thousands of configs
def protocol_training(name: ProtocolName, data: str, kind: EncoderKind = "large") -> TrainingConfig:
    """Return the settings of a protocol for a data set and a kind of encoder."""
    if name not in PROTOCOLS:
        raise unknown_name("protocol", name, PROTOCOLS)
    return PROTOCOLS[name].training(data, kind)
