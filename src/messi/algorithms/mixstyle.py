"""MixStyle: ERM with feature maps that take on other images' styles in training (Zhou et al., 2021)."""

from dataclasses import dataclass
from typing import Annotated

from messi.algorithms.erm import ERM
from messi.core.batch import Task
from messi.core.config import Bounds
from messi.models.encoder import EncoderConfig
from messi.models.mixstyle import insert


class MixStyle(ERM):
    """ERM with a convolutional encoder whose channel statistics are mixed between images in training."""

    @dataclass(frozen=True, kw_only=True)
    class Config(ERM.Config):
        """The values of SWAD's code, which has no search range for them."""

        probability: Annotated[float, Bounds(minimum=0, maximum=1)] = 0.5
        """How likely a batch is mixed; drawn by each of the places in the network."""
        alpha: Annotated[float, Bounds(above=0)] = 0.1
        """Shares are drawn from Beta(alpha, alpha): one of the two styles dominates where alpha is below 1."""

    config: Config

    def __init__(self, config: Config, *, task: Task, encoder: EncoderConfig) -> None:
        super().__init__(config, task=task, encoder=encoder)
        insert(self.encoder.network, probability=config.probability, alpha=config.alpha)
