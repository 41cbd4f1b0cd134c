"""The settings of weight averaging."""

from dataclasses import dataclass
from typing import Annotated, Literal

from messi.core.config import Bounds
from messi.engine.averaging.valley import SWADConfig

Averaging = Literal["none", "ma", "ema", "swad"]


@dataclass(frozen=True, kw_only=True)
class AveragingConfig(SWADConfig):
    """Which average of the weights becomes the model, and the settings of each kind."""

    averaging: Averaging = "none"
    """Average the weights, with any method: over all steps from a start (ma), with exponential decay (ema), or over
    the steps of a valley of the validation loss (swad)."""
    average_from: Annotated[float, Bounds(minimum=0, maximum=0.9999)] = 0.02
    """Where MA and EMA start to average, as a fraction of the training steps."""
    ema_decay: Annotated[float, Bounds(minimum=0, maximum=0.9999)] = 0.999
    """Decay of EMA: how much the weight of a step in the average shrinks with each later step."""
