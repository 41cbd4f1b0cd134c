"""The training part of a run's config: the configs of its parts, combined in one flat config by inheritance.

A new setting belongs to the config of the part that reads it; it then exists in Python, on the command line and in
``run.json``.
"""

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Self

from messi.core.config import OPEN, Bounds, Config
from messi.core.errors import MessiError
from messi.data.augment import AugmentationConfig
from messi.data.sampling import SamplingConfig
from messi.data.splits import SplitConfig
from messi.engine.averaging.config import AveragingConfig
from messi.engine.stepper import OptimizerConfig
from messi.evaluation.selection import SelectionConfig


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig(Config):
    """How long to train, and how often to evaluate and log."""

    steps: Annotated[int, Bounds(minimum=1)] = OPEN
    """Number of training steps."""
    evaluate_every: Annotated[int, Bounds(minimum=1)] = OPEN
    """Steps between evaluations; each evaluation writes a checkpoint."""
    log_every: Annotated[int, Bounds(minimum=1)] = 10
    """Steps between records of the loss terms, which are averaged over these steps."""


@dataclass(frozen=True, kw_only=True)
class TrainingConfig(  # fields are listed from the last base to the first
    SelectionConfig,
    SplitConfig,
    AugmentationConfig,
    AveragingConfig,
    OptimizerConfig,
    SamplingConfig,
    ScheduleConfig,
):
    """Schedule, optimizer, sampling, splits and selection; the defaults are those of the protocol."""

    deterministic: bool = True
    """Use only kernels that give the same bits every time; only matters on a GPU."""

    def __post_init__(self) -> None:
        """Check each setting, then those that depend on another."""
        super().__post_init__()
        if self.steps is OPEN:
            return
        if self.probe_steps > self.steps:
            raise MessiError(f"probe_steps must be at most steps = {self.steps}, but is {self.probe_steps}.")
        if self.probe_steps == self.steps and self.averaging != "none":
            raise MessiError(
                f"averaging '{self.averaging}' leaves out the probe, but probe_steps includes all {self.steps} steps; "
                "reduce probe_steps or set averaging to 'none'."
            )

    @classmethod
    def open_fields(cls) -> list[str]:
        """Return the names of the settings that a protocol may state."""
        return [field.name for field in dataclasses.fields(cls) if field.default is OPEN]

    def filled_from(self, defaults: "TrainingConfig") -> Self:
        """Return this config with its open settings taken from ``defaults``."""
        missing = [name for name in self.open_fields() if getattr(self, name) is None]
        return dataclasses.replace(self, **{name: getattr(defaults, name) for name in missing})
