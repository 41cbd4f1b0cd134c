"""messi: train on a few domains, work on an unseen one.

    import messi

    config = messi.RunConfig(data=messi.RotatedColoredMnist(), target=("rot0-p0.5",))
    result = messi.run(config)
    answers = messi.load(result.path).predict(images)

Names are imported when they are first used, so that ``import messi`` itself is quick and needs no torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from messi.algorithms.erm import Erm as Erm
    from messi.algorithms.messi import Messi as Messi
    from messi.api import run as run
    from messi.core.errors import MessiError as MessiError
    from messi.data.datasets.arrays import Arrays as Arrays
    from messi.data.datasets.colored_mnist import ColoredMnist as ColoredMnist
    from messi.data.datasets.domain_net import DomainNet as DomainNet
    from messi.data.datasets.folder import Folder as Folder
    from messi.data.datasets.iwildcam import Iwildcam as Iwildcam
    from messi.data.datasets.office_home import OfficeHome as OfficeHome
    from messi.data.datasets.pacs import Pacs as Pacs
    from messi.data.datasets.rotated_colored_mnist import RotatedColoredMnist as RotatedColoredMnist
    from messi.data.datasets.rotated_mnist import RotatedMnist as RotatedMnist
    from messi.data.datasets.table import Table as Table
    from messi.data.datasets.terra_incognita import TerraIncognita as TerraIncognita
    from messi.data.datasets.two_subsets import TwoSubsets as TwoSubsets
    from messi.data.datasets.vlcs import Vlcs as Vlcs
    from messi.data.datasets.wilds import Wilds as Wilds
    from messi.engine.config import RunConfig as RunConfig
    from messi.engine.config import TrainingConfig as TrainingConfig
    from messi.evaluation.model import load as load
    from messi.losses.ssi import ssi_loss as ssi_loss
    from messi.models.encoder import EncoderConfig as EncoderConfig
    from messi.models.head import MessiHead as MessiHead

_PUBLIC = {
    "Arrays": "messi.data.datasets.arrays",
    "ColoredMnist": "messi.data.datasets.colored_mnist",
    "DomainNet": "messi.data.datasets.domain_net",
    "EncoderConfig": "messi.models.encoder",
    "Erm": "messi.algorithms.erm",
    "Folder": "messi.data.datasets.folder",
    "Iwildcam": "messi.data.datasets.iwildcam",
    "load": "messi.evaluation.model",
    "Messi": "messi.algorithms.messi",
    "MessiError": "messi.core.errors",
    "MessiHead": "messi.models.head",
    "OfficeHome": "messi.data.datasets.office_home",
    "Pacs": "messi.data.datasets.pacs",
    "RotatedColoredMnist": "messi.data.datasets.rotated_colored_mnist",
    "RotatedMnist": "messi.data.datasets.rotated_mnist",
    "run": "messi.api",
    "RunConfig": "messi.engine.config",
    "ssi_loss": "messi.losses.ssi",
    "Table": "messi.data.datasets.table",
    "TerraIncognita": "messi.data.datasets.terra_incognita",
    "TrainingConfig": "messi.engine.config",
    "TwoSubsets": "messi.data.datasets.two_subsets",
    "Vlcs": "messi.data.datasets.vlcs",
    "Wilds": "messi.data.datasets.wilds",
}
__all__ = sorted(_PUBLIC)  # noqa: PLE0605 (a list, computed)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'messi' has no attribute '{name}'")
    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return __all__
