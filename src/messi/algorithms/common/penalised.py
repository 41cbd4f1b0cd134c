"""Base classes of methods that add one penalty to ERM: on the features, or annealed on the logits."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from messi.algorithms.erm import ERM
from messi.core.batch import Batch, LossTerms, Task
from messi.core.config import Bounds, LogUniform
from messi.losses.by_domain import domain_mean_cross_entropy
from messi.models.encoder import EncoderConfig


class PenalisedFeatures(ERM):
    """ERM plus a distance between the features of the domains."""

    @dataclass(frozen=True, kw_only=True)
    class Config(ERM.Config):
        """DomainBed's defaults."""

        gamma: Annotated[float, Bounds(minimum=0), LogUniform(-1, 1)] = 1.0
        """Weight of the penalty."""

    config: Config

    @abstractmethod
    def distance(self, features: Tensor, domains: Tensor) -> Tensor:
        """Return the mean distance over pairs of domains: features [B, R], domains [B]."""

    def loss(self, batch: Batch) -> LossTerms:
        """Return the classification term and the weighted penalty, which is named after the method."""
        features = self.encoder(batch.inputs)
        return {
            "cls": domain_mean_cross_entropy(self.classifier(features), batch.labels, batch.domains),
            self.config.name: self.config.gamma * self.distance(features, batch.domains),
        }


class AnnealedPenalty(ERM):
    """ERM plus a penalty on the logits, with the weight 1 in the first steps and penalty_weight after them."""

    @dataclass(frozen=True, kw_only=True)
    class Config(ERM.Config):
        """DomainBed's defaults."""

        penalty_weight: Annotated[float, Bounds(minimum=0), LogUniform(-1, 5)] = 1.0
        """Weight of the penalty after the first anneal_steps steps."""
        anneal_steps: Annotated[int, Bounds(minimum=0), LogUniform(0, 4)] = 500
        """Number of initial steps in which the penalty has the weight 1; the optimizer is reset after them."""

    config: Config

    def __init__(self, config: Config, *, task: Task, encoder: EncoderConfig) -> None:
        super().__init__(config, task=task, encoder=encoder)
        self.restart = config.anneal_steps + 1

    def phase(self, step: int) -> bool:
        """Return whether the penalty has its full weight."""
        return step > self.config.anneal_steps

    @abstractmethod
    def penalty(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the unweighted penalty of logits [B, C]."""

    def loss(self, batch: Batch) -> LossTerms:
        """Return the classification term and the weighted penalty, which is named after the method."""
        logits = self.classifier(self.encoder(batch.inputs))
        weight = self.config.penalty_weight if self.phase(batch.step) else 1.0
        return {
            "cls": domain_mean_cross_entropy(logits, batch.labels, batch.domains),
            self.config.name: weight * self.penalty(logits, batch),
        }
