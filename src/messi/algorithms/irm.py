"""Invariant risk minimisation: one classifier shall be optimal in every domain (Arjovsky et al., 2019)."""

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from messi.algorithms.common.penalised import AnnealedPenalty
from messi.core.batch import Batch
from messi.core.config import Bounds, LogUniform
from messi.losses.invariant_risk import invariant_risk


class IRM(AnnealedPenalty):
    """ERM and the squared gradient of every domain's risk by the scale of the logits."""

    @dataclass(frozen=True, kw_only=True)
    class Config(AnnealedPenalty.Config):
        """DomainBed's values."""

        penalty_weight: Annotated[float, Bounds(minimum=0), LogUniform(-1, 5)] = 1e2
        """Weight of the penalty after the first steps."""

    def penalty(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return it for the domains in the batch."""
        return invariant_risk(logits, batch.labels, batch.domains, self.task.num_domains)
