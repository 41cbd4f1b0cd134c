"""MMD: the features of all pairs of domains are pulled together by a kernel mean discrepancy (Li et al., 2018)."""

from dataclasses import dataclass

from torch import Tensor

from messi.algorithms.common.penalised import PenalisedFeatures
from messi.discrepancy.domain_mmd import domain_mmd


class MMD(PenalisedFeatures):
    """ERM and the squared maximum mean discrepancy between the domains' features."""

    @dataclass(frozen=True, kw_only=True)
    class Config(PenalisedFeatures.Config):
        """DomainBed's values."""

    def distance(self, features: Tensor, domains: Tensor) -> Tensor:
        """Return the mean over pairs of domains."""
        return domain_mmd(features, domains, self.task.num_domains)
