"""messi: train on a few domains, work on an unseen one.

    import messi

    config = messi.RunConfig(data=messi.RotatedColoredMNIST(), target=("rot0-p0.5",))
    result = messi.run(config)
    answers = messi.load(result.path).predict(images)

Names are imported when they are first used, so that ``import messi`` itself is quick and needs no torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from messi.algorithms.erm import ERM as ERM
    from messi.algorithms.messi import MESSI as MESSI
    from messi.api import run as run
    from messi.core.errors import MessiError as MessiError
    from messi.data.datasets.arrays import Arrays as Arrays
    from messi.data.datasets.colored_mnist import ColoredMNIST as ColoredMNIST
    from messi.data.datasets.domain_net import DomainNet as DomainNet
    from messi.data.datasets.folder import Folder as Folder
    from messi.data.datasets.iwildcam import IWildCam as IWildCam
    from messi.data.datasets.office_home import OfficeHome as OfficeHome
    from messi.data.datasets.pacs import PACS as PACS
    from messi.data.datasets.rotated_colored_mnist import RotatedColoredMNIST as RotatedColoredMNIST
    from messi.data.datasets.rotated_mnist import RotatedMNIST as RotatedMNIST
    from messi.data.datasets.table import Table as Table
    from messi.data.datasets.terra_incognita import TerraIncognita as TerraIncognita
    from messi.data.datasets.two_subsets import TwoSubsets as TwoSubsets
    from messi.data.datasets.vlcs import VLCS as VLCS
    from messi.data.datasets.wilds import Wilds as Wilds
    from messi.engine.config import RunConfig as RunConfig
    from messi.engine.config import TrainingConfig as TrainingConfig
    from messi.evaluation.model import load as load
    from messi.losses.ssi.loss import ssi_loss as ssi_loss
    from messi.models.encoder import EncoderConfig as EncoderConfig
    from messi.models.head import MessiHead as MessiHead

_PUBLIC = {
    "Arrays": "messi.data.datasets.arrays",
    "ColoredMNIST": "messi.data.datasets.colored_mnist",
    "DomainNet": "messi.data.datasets.domain_net",
    "EncoderConfig": "messi.models.encoder",
    "ERM": "messi.algorithms.erm",
    "Folder": "messi.data.datasets.folder",
    "IWildCam": "messi.data.datasets.iwildcam",
    "load": "messi.evaluation.model",
    "MESSI": "messi.algorithms.messi",
    "MessiError": "messi.core.errors",
    "MessiHead": "messi.models.head",
    "OfficeHome": "messi.data.datasets.office_home",
    "PACS": "messi.data.datasets.pacs",
    "RotatedColoredMNIST": "messi.data.datasets.rotated_colored_mnist",
    "RotatedMNIST": "messi.data.datasets.rotated_mnist",
    "run": "messi.api",
    "RunConfig": "messi.engine.config",
    "ssi_loss": "messi.losses.ssi.loss",
    "Table": "messi.data.datasets.table",
    "TerraIncognita": "messi.data.datasets.terra_incognita",
    "TrainingConfig": "messi.engine.config",
    "TwoSubsets": "messi.data.datasets.two_subsets",
    "VLCS": "messi.data.datasets.vlcs",
    "Wilds": "messi.data.datasets.wilds",
}
__all__ = sorted(_PUBLIC)  # noqa: PLE0605 (a list, computed)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'messi' has no attribute '{name}'")
    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return __all__
