"""V-REx: make the risks of the domains equal (Krueger et al., 2021)."""

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from messi.algorithms.common.penalised import AnnealedPenalty
from messi.core.batch import Batch
from messi.core.config import Bounds, LogUniform
from messi.losses.by_domain import domain_cross_entropies, mean_of_present


class VREx(AnnealedPenalty):
    """ERM plus the variance of the domain risks."""

    @dataclass(frozen=True, kw_only=True)
    class Config(AnnealedPenalty.Config):
        """DomainBed's defaults."""

        penalty_weight: Annotated[float, Bounds(minimum=0), LogUniform(-1, 5)] = 1e1
        """Weight of the penalty after the first anneal_steps steps."""

    def penalty(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the variance of the risks of the domains in the batch."""
        risks, present = domain_cross_entropies(logits, batch.labels, batch.domains, self.task.num_domains)
        return risk_variance(risks, present)


def risk_variance(risks: Tensor, present: Tensor) -> Tensor:
    """Return the mean squared deviation from the mean over the K present domains: risks [K], bool [K] -> scalar."""
    return mean_of_present((risks - mean_of_present(risks, present)).square(), present)
