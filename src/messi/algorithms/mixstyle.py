"""MixStyle: ERM that mixes the styles of feature maps between images in training (Zhou et al., 2021)."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from messi.algorithms.erm import ERM
from messi.core.batch import Task
from messi.core.config import Bounds
from messi.models.encoder import EncoderConfig
from messi.models.mixstyle import insert
from messi.models.tuning import TuningKind


class MixStyle(ERM):
    """ERM with a convolutional encoder that mixes channel statistics between images in training."""

    @dataclass(frozen=True, kw_only=True)
    class Config(ERM.Config):
        """The defaults of SWAD's code, which defines no search ranges for them."""

        probability: Annotated[float, Bounds(minimum=0, maximum=1)] = 0.5
        """Probability that a batch is mixed, drawn separately at each position in the network."""
        alpha: Annotated[float, Bounds(above=0)] = 0.1
        """Mixing weights are drawn from Beta(alpha, alpha): below 1, one of the two styles dominates."""

    config: Config
    tunings: ClassVar[tuple[TuningKind, ...]] = ("full",)

    def __init__(self, config: Config, *, task: Task, encoder: EncoderConfig) -> None:
        super().__init__(config, task=task, encoder=encoder)
        insert(self.encoder.network, probability=config.probability, alpha=config.alpha)
