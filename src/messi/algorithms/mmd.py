"""MMD: align the features of all pairs of domains by their maximum mean discrepancy (Li et al., 2018)."""

from dataclasses import dataclass

from torch import Tensor

from messi.algorithms.common.penalised import PenalisedFeatures
from messi.discrepancy.mmd import domain_mmd


class MMD(PenalisedFeatures):
    """ERM plus the squared maximum mean discrepancy between the features of the domains."""

    @dataclass(frozen=True, kw_only=True)
    class Config(PenalisedFeatures.Config):
        """DomainBed's defaults."""

    def distance(self, features: Tensor, domains: Tensor) -> Tensor:
        """Return the mean MMD^2 over pairs of domains."""
        return domain_mmd(features, domains, self.task.num_domains)
