"""MMD: the features of all pairs of domains are pulled together by a kernel mean discrepancy (Li et al., 2018)."""

from dataclasses import dataclass
from typing import Annotated

from messi.algorithms.erm import Erm
from messi.core.batch import Batch, LossTerms
from messi.core.config import Bounds, LogUniform
from messi.discrepancy.domain_mmd import domain_mmd
from messi.losses.classification import domain_mean_cross_entropy


class Mmd(Erm):
    """ERM and the squared maximum mean discrepancy between the domains' features."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Erm.Config):
        """DomainBed's values."""

        gamma: Annotated[float, Bounds(minimum=0), LogUniform(-1, 1)] = 1.0
        """Weight of the penalty."""

    config: Config

    def loss(self, batch: Batch) -> LossTerms:
        """Return the classification term and the penalty."""
        features = self.encoder(batch.inputs)
        penalty = domain_mmd(features, batch.domains, self.task.num_domains)
        return {
            "cls": domain_mean_cross_entropy(self.classifier(features), batch.labels, batch.domains),
            "mmd": self.config.gamma * penalty,
        }
