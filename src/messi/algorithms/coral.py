"""CORAL: align the means and covariances of the features over all pairs of domains (Sun & Saenko, 2016)."""

from dataclasses import dataclass

from torch import Tensor

from messi.algorithms.common.penalised import PenalisedFeatures
from messi.discrepancy.coral import coral


class CORAL(PenalisedFeatures):
    """ERM plus the distance between the feature means and covariances of the domains."""

    @dataclass(frozen=True, kw_only=True)
    class Config(PenalisedFeatures.Config):
        """DomainBed's defaults."""

    def distance(self, features: Tensor, domains: Tensor) -> Tensor:
        """Return the mean CORAL distance over pairs of domains."""
        return coral(features, domains, self.task.num_domains)
