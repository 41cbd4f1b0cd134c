"""IRM, invariant risk minimisation: one classifier that is optimal in every domain (Arjovsky et al., 2019).

    penalty = mean over domains of  d/ds R_even(s w) * d/ds R_odd(s w)   at s = 1,   R: mean cross-entropy of a half

The product of two independent estimates is unbiased for the squared gradient; the square of one estimate is not. The
derivative for one example is  sum_c p_c l_c - l_y  with the logits l and their softmax p, so no second backward pass
is needed. Legend: B examples, C classes, K domains.
"""

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from messi.algorithms.common.penalised import AnnealedPenalty
from messi.core.batch import Batch
from messi.core.config import Bounds, LogUniform
from messi.discrepancy.domains import membership, ranks
from messi.losses.by_domain import domain_means, mean_of_present


class IRM(AnnealedPenalty):
    """ERM plus the squared gradient of each domain's risk with respect to the scale of the logits."""

    @dataclass(frozen=True, kw_only=True)
    class Config(AnnealedPenalty.Config):
        """DomainBed's defaults."""

        penalty_weight: Annotated[float, Bounds(minimum=0), LogUniform(-1, 5)] = 1e2
        """Weight of the penalty after the first anneal_steps steps."""

    def penalty(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the IRM penalty of the domains in the batch."""
        return invariant_risk(logits, batch.labels, batch.domains, self.task.num_domains)


def scale_gradients(logits: Tensor, labels: Tensor) -> Tensor:
    """Return d/ds of the cross-entropy of s * logits at s = 1 for every example: [B, C], [B] -> [B]."""
    logits = logits.float()
    expected = (logits.softmax(-1) * logits).sum(-1)
    return expected - logits.gather(-1, labels[:, None]).squeeze(-1)


def invariant_risk(logits: Tensor, labels: Tensor, domains: Tensor, num_domains: int) -> Tensor:
    """Return the penalty, a scalar; the halves are the even and the odd examples of a domain in batch order.

    A domain with a single example has an empty half and contributes 0. Shapes: logits [B, C], labels [B], domains [B].
    """
    gradients = scale_gradients(logits, labels)
    members = membership(domains, num_domains)
    even = ranks(members) % 2 == 0
    products = domain_means(gradients, members & even) * domain_means(gradients, members & ~even)
    return mean_of_present(products, members.any(1))
