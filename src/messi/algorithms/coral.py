"""CORAL: means and covariances of the features are pulled together over all pairs of domains (Sun & Saenko, 2016)."""

from dataclasses import dataclass
from typing import Annotated

from messi.algorithms.erm import Erm
from messi.core.batch import Batch, LossTerms
from messi.core.config import Bounds, LogUniform
from messi.discrepancy.coral import coral
from messi.losses.classification import domain_mean_cross_entropy


class Coral(Erm):
    """ERM and the distance between the domains' feature means and covariances."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Erm.Config):
        """DomainBed's values."""

        gamma: Annotated[float, Bounds(minimum=0), LogUniform(-1, 1)] = 1.0
        """Weight of the penalty."""

    config: Config

    def loss(self, batch: Batch) -> LossTerms:
        """Return the classification term and the penalty."""
        features = self.encoder(batch.inputs)
        penalty = coral(features, batch.domains, self.task.num_domains)
        return {
            "cls": domain_mean_cross_entropy(self.classifier(features), batch.labels, batch.domains),
            "coral": self.config.gamma * penalty,
        }
