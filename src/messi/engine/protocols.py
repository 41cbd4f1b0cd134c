"""Protocols by name: the settings that results of different papers were obtained with, and that make them differ.

A protocol says everything about data, schedule and selection that a number depends on; a run names its protocol, and
whatever it sets otherwise is told with its result. Sources: the MESSI paper's appendix; DomainBed's train.py and
datasets.py; SWAD's README and datasets; GMoE's hparams_registry.py. All select by the accuracy on source validation
data, but for iWildCam: there the MESSI paper follows WILDS, which selects by the macro F1 on the official validation
data of unseen cameras. DomainBed, SWAD and GMoE count their steps from 0 and evaluate after the first one, too; a step
that is never selected, and not done here.
"""

from typing import Any, Literal

from messi.core.errors import unknown_name

ProtocolName = Literal["messi", "domainbed", "swad", "gmoe"]
SMALL_IMAGES = "small images"
"""The settings for the small encoders."""

_DOMAINBED: dict[str, Any] = {
    "split": "domainbed",
    "validation_fraction": 0.2,
    "validation_augmentation": True,
    "target_part": "in",
    "selection": "source_val",
    "sampling": "replacement",
    "domains_per_batch": None,
    "batch_per_domain": 32,
    "steps": 5001,
    "evaluate_every": 300,
    "learning_rate": 5e-5,
    "weight_decay": 0.0,
    "sagm_alpha": 1e-3,  # SAGM's own, for data of few classes; half of it for many
    "swad_tolerance": 0.3,  # SWAD's own, as is that for VLCS
}
PROTOCOLS: dict[str, dict[str, dict[str, Any]]] = {
    "messi": {
        "": {
            **_DOMAINBED,
            "split": "stratified",
            "validation_augmentation": False,
            "target_part": "all",
            "steps": 5000,
            "evaluate_every": 200,
            "learning_rate": 3e-5,
            "weight_decay": 1e-6,
        },
        SMALL_IMAGES: {"learning_rate": 1e-3},
        "vlcs": {"swad_tolerance": 0.2},
        "office_home": {"steps": 10_000, "learning_rate": 1e-5, "sagm_alpha": 5e-4},
        "terra_incognita": {"steps": 10_000, "learning_rate": 5e-5, "weight_decay": 1e-4},
        "domain_net": {
            "steps": 15_000,
            "evaluate_every": 500,
            "learning_rate": 5e-5,
            "weight_decay": 0.0,
            "sagm_alpha": 5e-4,
        },
        "iwildcam": {
            "split": "official",
            "selection": "unseen_val_macro_f1",
            "sampling": "epochs",
            "domains_per_batch": 4,
            "batch_per_domain": 8,
            "steps": 150_000,
            "evaluate_every": 5000,
            "weight_decay": 0.0,
        },
    },
    "domainbed": {
        "": _DOMAINBED,
        SMALL_IMAGES: {"batch_per_domain": 64, "evaluate_every": 100, "learning_rate": 1e-3},
        "vlcs": {"swad_tolerance": 0.2},
        "office_home": {"sagm_alpha": 5e-4},
        "domain_net": {"evaluate_every": 1000, "sagm_alpha": 5e-4},
    },
    "swad": {
        "": {**_DOMAINBED, "validation_augmentation": False, "evaluate_every": 100},
        SMALL_IMAGES: {"batch_per_domain": 64, "learning_rate": 1e-3},
        "vlcs": {"evaluate_every": 50, "swad_tolerance": 0.2},
        "office_home": {"sagm_alpha": 5e-4},
        "domain_net": {"steps": 15_001, "evaluate_every": 500, "sagm_alpha": 5e-4},
    },
    "gmoe": {
        "": {**_DOMAINBED, "learning_rate": 3e-5, "weight_decay": 1e-6},
        SMALL_IMAGES: {"batch_per_domain": 64, "evaluate_every": 100, "learning_rate": 1e-3, "weight_decay": 0.0},
        "vlcs": {"swad_tolerance": 0.2},
        "office_home": {"learning_rate": 1e-5, "sagm_alpha": 5e-4},
        "terra_incognita": {"learning_rate": 5e-5, "weight_decay": 1e-4},
        "domain_net": {
            "steps": 15_001,
            "evaluate_every": 500,
            "learning_rate": 5e-5,
            "weight_decay": 0.0,
            "sagm_alpha": 5e-4,
        },
    },
}


def protocol_settings(name: str, data: str, *, small: bool) -> dict[str, Any]:
    """Return what a protocol says for a data set, with one of the small encoders or not."""
    if name not in PROTOCOLS:
        raise unknown_name("protocol", name, PROTOCOLS)
    protocol = PROTOCOLS[name]
    return {**protocol[""], **protocol.get(data, {}), **(protocol[SMALL_IMAGES] if small else {})}
