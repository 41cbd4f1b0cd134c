"""CORAL: means and covariances of the features are pulled together over all pairs of domains (Sun & Saenko, 2016)."""

from dataclasses import dataclass

from torch import Tensor

from messi.algorithms.common.penalised import PenalisedFeatures
from messi.discrepancy.coral import coral


class CORAL(PenalisedFeatures):
    """ERM and the distance between the domains' feature means and covariances."""

    @dataclass(frozen=True, kw_only=True)
    class Config(PenalisedFeatures.Config):
        """DomainBed's values."""

    def distance(self, features: Tensor, domains: Tensor) -> Tensor:
        """Return the mean over pairs of domains."""
        return coral(features, domains, self.task.num_domains)
