"""V-REx: the risks of the domains shall be equal (Krueger et al., 2021)."""

from dataclasses import dataclass
from typing import Annotated

from messi.algorithms.erm import Erm
from messi.core.batch import Batch, LossTerms, Task
from messi.core.config import Bounds, LogUniform
from messi.losses.by_domain import domain_cross_entropies, mean_of_present
from messi.losses.risk_variance import risk_variance
from messi.models.encoder import EncoderConfig


class Vrex(Erm):
    """ERM and the variance of the domains' risks."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Erm.Config):
        """DomainBed's values."""

        penalty_weight: Annotated[float, Bounds(minimum=0), LogUniform(-1, 5)] = 1e1
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
        """Return the mean and the weighted variance of the domains' risks."""
        logits = self.classifier(self.encoder(batch.inputs))
        risks, present = domain_cross_entropies(logits, batch.labels, batch.domains, self.task.num_domains)
        weight = self.config.penalty_weight if self.phase(batch.step) else 1.0
        return {"cls": mean_of_present(risks, present), "vrex": weight * risk_variance(risks, present)}
