"""The paper's methods by the names of its tables, the backbones they run on, and the readings of its open points."""

from dataclasses import dataclass, field
from pathlib import Path

from messi.algorithms.cdann import CDANN
from messi.algorithms.common.base import AlgorithmConfig
from messi.algorithms.coral import CORAL
from messi.algorithms.dann import DANN
from messi.algorithms.dynmoe import DynMoE
from messi.algorithms.erm import ERM
from messi.algorithms.fish import Fish
from messi.algorithms.fishr import Fishr
from messi.algorithms.gmoe import GMoE
from messi.algorithms.group_dro import GroupDRO
from messi.algorithms.irm import IRM
from messi.algorithms.lfme import LFME
from messi.algorithms.messi import MESSI
from messi.algorithms.mixstyle import MixStyle
from messi.algorithms.mixup import Mixup
from messi.algorithms.mldg import MLDG
from messi.algorithms.mmd import MMD
from messi.algorithms.omoe import OMoE
from messi.algorithms.vrex import VREx
from messi.engine.config import TrainingConfig
from messi.models import resnet_v1
from messi.models.encoder import SMALL, EncoderConfig

RESNET_50, DEIT_S, DEIT_TI = "resnet50", "deit_small_patch16_224", "deit_tiny_patch16_224"
_TITLES = {
    RESNET_50: "ResNet-50",
    resnet_v1.NAME: "ResNet-50 v1",
    DEIT_S: "DeiT-S/16",
    DEIT_TI: "DeiT-Ti/16",
}

MESSI_OT = MESSI.Config()
MESSI_MMD = MESSI.Config(discrepancy="mmd")
ERM_MOE = MESSI.Config(ssi_weight=0.0, sparsity_weight=0.0, balance_weight=0.0, diversity_weight=0.0)
"""MESSI's network, trained with the classification term only."""
GLOBAL_MOE = MESSI.Config(selector="global")
RANDOM_SUBSET_MOE = MESSI.Config(selector="random")
DOMAIN_ONLY = MESSI.Config(selector="domain")


@dataclass(frozen=True)
class Method:
    """A row of the paper's main table: a method, its backbone there, and how it is trained."""

    algorithm: AlgorithmConfig
    backbone: str = RESNET_50
    training: TrainingConfig = field(default_factory=TrainingConfig)


SAM, SAGM = TrainingConfig(flatness="sam"), TrainingConfig(flatness="sagm")
SWAD = TrainingConfig(averaging="swad")

ROWS = {
    "ERM": Method(ERM.Config()),
    "IRM": Method(IRM.Config()),
    "GroupDRO": Method(GroupDRO.Config()),
    "Mixup": Method(Mixup.Config()),
    "MLDG": Method(MLDG.Config()),
    "CORAL": Method(CORAL.Config()),
    "MMD": Method(MMD.Config()),
    "DANN": Method(DANN.Config()),
    "CDANN": Method(CDANN.Config()),
    "MixStyle": Method(MixStyle.Config()),
    "V-REx": Method(VREx.Config()),
    "Fish": Method(Fish.Config()),
    "Fishr": Method(Fishr.Config()),
    "SAM": Method(ERM.Config(), training=SAM),
    "SAGM": Method(ERM.Config(), training=SAGM),
    "SWAD": Method(ERM.Config(), training=SWAD),
    "LFME": Method(LFME.Config()),
    "ERM-S": Method(ERM.Config(), DEIT_S),
    "DynMoE": Method(DynMoE.Config(), DEIT_S),
    "GMoE": Method(GMoE.Config(), DEIT_S),
    "GMoE+SAGM": Method(GMoE.Config(), DEIT_S, SAGM),
    "OMoE": Method(OMoE.Config(), DEIT_S),
    "ERM-MoE": Method(ERM_MOE, DEIT_S),
    "Global-MoE": Method(GLOBAL_MOE, DEIT_S),
    "MESSI-Ti-MMD": Method(MESSI_MMD, DEIT_TI),
    "MESSI-Ti-OT": Method(MESSI_OT, DEIT_TI),
    "MESSI-S-MMD": Method(MESSI_MMD, DEIT_S),
    "MESSI-S-OT": Method(MESSI_OT, DEIT_S),
}
READINGS: dict[str, AlgorithmConfig] = {
    "ERM": ERM.Config(),
    "ERM-MoE": ERM_MOE,
    "MESSI, defaults": MESSI.Config(),
    "sum over slots": MESSI.Config(reduction="sum"),
    "epsilon 0.01 of the mean cost": MESSI.Config(epsilon=0.01),
    "epsilon 1 of the mean cost": MESSI.Config(epsilon=1.0),
    "epsilon 0.1, absolute": MESSI.Config(epsilon_scale="absolute"),
    "epsilon 1, absolute": MESSI.Config(epsilon=1.0, epsilon_scale="absolute"),
    "10 rounds": MESSI.Config(iterations=10),
    "200 rounds": MESSI.Config(iterations=200),
    "diversity by the equation": MESSI.Config(diversity="frobenius"),
    "MMD": MESSI_MMD,
    "ssi weight 0.001": MESSI.Config(ssi_weight=0.001),
    "ssi weight 0.1": MESSI.Config(ssi_weight=0.1),
    "ssi weight 1": MESSI.Config(ssi_weight=1.0),
    "ssi weight 10": MESSI.Config(ssi_weight=10.0),
    "balance weight 0.2": MESSI.Config(balance_weight=0.2),
    "no regularisers": MESSI.Config(sparsity_weight=0.0, balance_weight=0.0, diversity_weight=0.0),
}
"""The readings of the paper's open points: MESSI with one option changed at a time, and what to compare it with."""
SMALL_READINGS = ("ERM", "MESSI, defaults", "sum over slots", "diversity by the equation", "MMD")
READINGS_BASELINE = "MESSI, defaults"
READINGS_TITLE = "MESSI with one option changed at a time"
READINGS_EXPLANATION = "Defaults may be chosen by validation only"


def distinct_rows() -> tuple[str, ...]:
    """Return the rows of the table; of those that differ only in the backbone, the first."""
    kinds: dict[tuple[AlgorithmConfig, TrainingConfig], str] = {}
    for name, row in ROWS.items():
        kinds.setdefault((row.algorithm, row.training), name)
    return tuple(kinds.values())


def learning_rate_name(rate: float) -> str:
    """Return the name of the reading with another learning rate."""
    return f"learning rate {rate:g}"


def backbone_title(backbone: str) -> str:
    """Return the paper's name of a backbone; timm's name for any other."""
    return _TITLES.get(backbone, backbone)


def paper_backbone(backbone: str) -> str:
    """Return the backbone under which the paper lists this one: it does not distinguish the versions of ResNet-50."""
    return RESNET_50 if backbone == resnet_v1.NAME else backbone


def pretrained(backbone: str, folder: str | None) -> EncoderConfig:
    """Return an encoder with pretrained weights: from a file named like the backbone in a folder, or downloaded.

    BatchNorm keeps its pretrained statistics, as in the published results on DomainBed; DeiT has no BatchNorm.
    """
    weights = str(_weights_file(Path(folder), backbone)) if folder and backbone not in SMALL else None
    return EncoderConfig(backbone=backbone, weights=weights, frozen_batch_norm=True)


def _weights_file(folder: Path, backbone: str) -> Path:
    """Return the file; if there is none, the first name, since a plan is also read on machines without the weights."""
    files = [folder / f"{backbone}{ending}" for ending in (".safetensors", ".pth")]
    return next((file for file in files if file.is_file()), files[0])
