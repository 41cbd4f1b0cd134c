"""The choice of how weights are averaged during training."""

from dataclasses import dataclass
from typing import Literal

from torch import nn

from messi.engine.averaging.swad import SWAD
from messi.engine.averaging.valley import SWADConfig

Averaging = Literal["none", "swad"]


@dataclass(frozen=True, kw_only=True)
class AveragingConfig(SWADConfig):
    """Which average of the weights becomes the model, and the settings of each kind."""

    averaging: Averaging = "none"
    """Average the weights, with any method: SWAD averages over the steps of a valley of the validation loss."""


def make_averager(module: nn.Module, config: AveragingConfig) -> SWAD | None:
    """Return the averager of a module's weights, or None if the weights of a single step become the model."""
    return SWAD(module, config) if config.averaging == "swad" else None
