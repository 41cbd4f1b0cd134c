"""V-REx: the risks of the domains shall be equal (Krueger et al., 2021)."""

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from messi.algorithms.common.penalised import AnnealedPenalty
from messi.core.batch import Batch
from messi.core.config import Bounds, LogUniform
from messi.losses.by_domain import domain_cross_entropies
from messi.losses.risk_variance import risk_variance


class VREx(AnnealedPenalty):
    """ERM and the variance of the domains' risks."""

    @dataclass(frozen=True, kw_only=True)
    class Config(AnnealedPenalty.Config):
        """DomainBed's values."""

        penalty_weight: Annotated[float, Bounds(minimum=0), LogUniform(-1, 5)] = 1e1
        """Weight of the penalty after the first steps."""

    def penalty(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return it for the domains in the batch."""
        risks, present = domain_cross_entropies(logits, batch.labels, batch.domains, self.task.num_domains)
        return risk_variance(risks, present)
