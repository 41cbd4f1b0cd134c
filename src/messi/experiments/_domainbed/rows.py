"""The rows of the main table by name: a method, the backbone that the paper has it on, and how it is trained."""

from dataclasses import dataclass, field

from messi.algorithms._base import AlgorithmConfig
from messi.algorithms.cdann import Cdann
from messi.algorithms.coral import Coral
from messi.algorithms.dann import Dann
from messi.algorithms.dynmoe import Dynmoe
from messi.algorithms.erm import Erm
from messi.algorithms.fish import Fish
from messi.algorithms.fishr import Fishr
from messi.algorithms.gmoe import Gmoe
from messi.algorithms.group_dro import GroupDro
from messi.algorithms.irm import Irm
from messi.algorithms.lfme import Lfme
from messi.algorithms.mixstyle import Mixstyle
from messi.algorithms.mixup import Mixup
from messi.algorithms.mldg import Mldg
from messi.algorithms.mmd import Mmd
from messi.algorithms.omoe import Omoe
from messi.algorithms.vrex import Vrex
from messi.engine.config import TrainingConfig
from messi.experiments._backbones import DEIT_S, DEIT_TI, RESNET_50
from messi.experiments._methods import ERM_MOE, GLOBAL_MOE, MESSI_MMD, MESSI_OT


@dataclass(frozen=True)
class Method:
    """What a row runs."""

    method: AlgorithmConfig
    backbone: str = RESNET_50
    training: TrainingConfig = field(default_factory=TrainingConfig)


SAM, SAGM = TrainingConfig(flatness="sam"), TrainingConfig(flatness="sagm")
SWAD = TrainingConfig(averaging="swad")

ROWS = {
    "ERM": Method(Erm.Config()),
    "IRM": Method(Irm.Config()),
    "GroupDRO": Method(GroupDro.Config()),
    "Mixup": Method(Mixup.Config()),
    "MLDG": Method(Mldg.Config()),
    "CORAL": Method(Coral.Config()),
    "MMD": Method(Mmd.Config()),
    "DANN": Method(Dann.Config()),
    "CDANN": Method(Cdann.Config()),
    "MixStyle": Method(Mixstyle.Config()),
    "V-REx": Method(Vrex.Config()),
    "Fish": Method(Fish.Config()),
    "Fishr": Method(Fishr.Config()),
    "SAM": Method(Erm.Config(), training=SAM),
    "SAGM": Method(Erm.Config(), training=SAGM),
    "SWAD": Method(Erm.Config(), training=SWAD),
    "LFME": Method(Lfme.Config()),
    "ERM-S": Method(Erm.Config(), DEIT_S),
    "DynMoE": Method(Dynmoe.Config(), DEIT_S),
    "GMoE": Method(Gmoe.Config(), DEIT_S),
    "GMoE+SAGM": Method(Gmoe.Config(), DEIT_S, SAGM),
    "OMoE": Method(Omoe.Config(), DEIT_S),
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
