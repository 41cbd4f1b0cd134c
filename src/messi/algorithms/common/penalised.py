"""What methods share that add one penalty to ERM: by what it is weighted."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from messi.algorithms.erm import ERM
from messi.core.batch import Batch, LossTerms, Task
from messi.core.config import Bounds, LogUniform
from messi.losses.classification import domain_mean_cross_entropy
from messi.models.encoder import EncoderConfig


class PenalisedFeatures(ERM):
    """ERM and a distance between the domains' features."""

    @dataclass(frozen=True, kw_only=True)
    class Config(ERM.Config):
        """DomainBed's values."""

        gamma: Annotated[float, Bounds(minimum=0), LogUniform(-1, 1)] = 1.0
        """Weight of the penalty."""

    config: Config

    @abstractmethod
    def distance(self, features: Tensor, domains: Tensor) -> Tensor:
        """Return the mean distance over pairs of domains: features [B, R], domains [B]."""

    def loss(self, batch: Batch) -> LossTerms:
        """Return the classification term and the penalty, named like the method."""
        features = self.encoder(batch.inputs)
        return {
            "cls": domain_mean_cross_entropy(self.classifier(features), batch.labels, batch.domains),
            self.config.name: self.config.gamma * self.distance(features, batch.domains),
        }


class AnnealedPenalty(ERM):
    """ERM and a penalty on the logits that has the weight 1 in the first steps and its own after them."""

    @dataclass(frozen=True, kw_only=True)
    class Config(ERM.Config):
        """DomainBed's schedule."""

        penalty_weight: Annotated[float, Bounds(minimum=0), LogUniform(-1, 5)] = 1.0
        """Weight of the penalty after the first steps."""
        anneal_steps: Annotated[int, Bounds(minimum=0), LogUniform(0, 4)] = 500
        """Number of first steps, in which the penalty has the weight 1; then the optimizer starts anew."""

    config: Config

    def __init__(self, config: Config, *, task: Task, encoder: EncoderConfig) -> None:
        super().__init__(config, task=task, encoder=encoder)
        self.restart = config.anneal_steps + 1

    def phase(self, step: int) -> bool:
        """Return whether the penalty has its full weight."""
        return step > self.config.anneal_steps

    @abstractmethod
    def penalty(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the penalty of logits [B, C]."""

    def loss(self, batch: Batch) -> LossTerms:
        """Return the classification term and the penalty, named like the method."""
        logits = self.classifier(self.encoder(batch.inputs))
        weight = self.config.penalty_weight if self.phase(batch.step) else 1.0
        return {
            "cls": domain_mean_cross_entropy(logits, batch.labels, batch.domains),
            self.config.name: weight * self.penalty(logits, batch),
        }
