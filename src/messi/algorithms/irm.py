"""Invariant risk minimisation: one classifier shall be optimal in every domain (Arjovsky et al., 2019)."""

from dataclasses import dataclass
from typing import Annotated

from messi.algorithms.erm import Erm
from messi.core.batch import Batch, LossTerms, Task
from messi.core.config import Bounds, LogUniform
from messi.losses.classification import domain_mean_cross_entropy
from messi.losses.invariant_risk import invariant_risk
from messi.models.encoder import EncoderConfig


class Irm(Erm):
    """ERM and the squared gradient of every domain's risk by the scale of the logits."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Erm.Config):
        """DomainBed's values."""

        penalty_weight: Annotated[float, Bounds(minimum=0), LogUniform(-1, 5)] = 1e2
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

    def loss(self, batch: Batch) -> LossTerms:
        """Return the classification term and the penalty."""
        logits = self.classifier(self.encoder(batch.inputs))
        weight = self.config.penalty_weight if self.phase(batch.step) else 1.0
        penalty = invariant_risk(logits, batch.labels, batch.domains, self.task.num_domains)
        return {
            "cls": domain_mean_cross_entropy(logits, batch.labels, batch.domains),
            "irm": weight * penalty,
        }
