"""Builds what averages the weights of a run."""

import math

from torch import nn

from messi.engine.averaging.averager import Averager
from messi.engine.averaging.running import RunningAverage
from messi.engine.averaging.swad import SWAD
from messi.engine.training_config import TrainingConfig


def first_averaged_step(config: TrainingConfig) -> int:
    """Return the first step whose weights may be averaged, never one of the probe; SWAD chooses among later ones."""
    start = 1 if config.averaging == "swad" else round(config.average_from * config.steps)
    return max(start, config.probe_steps + 1)


def make_averager(module: nn.Module, config: TrainingConfig, *, num_classes: int) -> Averager | None:
    """Return the averager of a module's weights, or None if they are not averaged."""
    first = first_averaged_step(config)
    match config.averaging:
        case "none":
            return None
        case "swad":
            return SWAD(module, config, first=first, chance=math.log(num_classes))
        case "ma":
            return RunningAverage(module, first=first)
        case "ema":
            return RunningAverage(module, first=first, decay=config.ema_decay)
