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
    from messi.core.errors import MessiError as MessiError
    from messi.data.datasets.folder import Folder as Folder
    from messi.data.datasets.rotated_colored_mnist import RotatedColoredMnist as RotatedColoredMnist
    from messi.data.datasets.two_subsets import TwoSubsets as TwoSubsets
    from messi.engine.config import RunConfig as RunConfig
    from messi.engine.config import TrainingConfig as TrainingConfig
    from messi.engine.run import run as run
    from messi.evaluation.model import load as load
    from messi.losses.ssi import ssi_loss as ssi_loss
    from messi.models.encoder import EncoderConfig as EncoderConfig
    from messi.models.head import MessiHead as MessiHead

_PUBLIC = {
    "EncoderConfig": "messi.models.encoder",
    "Erm": "messi.algorithms.erm",
    "Folder": "messi.data.datasets.folder",
    "Messi": "messi.algorithms.messi",
    "MessiError": "messi.core.errors",
    "MessiHead": "messi.models.head",
    "RotatedColoredMnist": "messi.data.datasets.rotated_colored_mnist",
    "RunConfig": "messi.engine.config",
    "TrainingConfig": "messi.engine.config",
    "TwoSubsets": "messi.data.datasets.two_subsets",
    "load": "messi.evaluation.model",
    "run": "messi.engine.run",
    "ssi_loss": "messi.losses.ssi",
}
__all__ = sorted(_PUBLIC)  # noqa: PLE0605 (a list, computed)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'messi' has no attribute '{name}'")
    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return __all__
