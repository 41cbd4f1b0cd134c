"""The rows of the main table by name: a method, the backbone that the paper has it on, and how it is trained."""

from dataclasses import dataclass, field

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
from messi.algorithms.mixstyle import MixStyle
from messi.algorithms.mixup import Mixup
from messi.algorithms.mldg import MLDG
from messi.algorithms.mmd import MMD
from messi.algorithms.omoe import OMoE
from messi.algorithms.vrex import VREx
from messi.engine.config import TrainingConfig
from messi.experiments.common.backbones import DEIT_S, DEIT_TI, RESNET_50
from messi.experiments.common.methods import ERM_MOE, GLOBAL_MOE, MESSI_MMD, MESSI_OT


@dataclass(frozen=True)
class Method:
    """What a row runs."""

    method: AlgorithmConfig
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


def same_method_once() -> tuple[str, ...]:
    """Return the rows that differ in more than the backbone, of each kind the first."""
    kinds: dict[tuple[AlgorithmConfig, TrainingConfig], str] = {}
    for name, row in ROWS.items():
        kinds.setdefault((row.method, row.training), name)
    return tuple(kinds.values())
