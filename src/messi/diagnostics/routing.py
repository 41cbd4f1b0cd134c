"""What the router does, from its recorded weights.

Legend: N examples, M experts, C classes, K domains.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

DEAD_BELOW = 0.01
"""An expert whose mean routing mass is below this is called dead."""


def mean_routing_by_class(routing: Tensor, labels: Tensor, *, num_classes: int) -> tuple[Tensor, Tensor]:
    """Return P(expert | class) and the number of examples of each class.

    Shapes: routing [N, M], labels [N] -> [C, M] (zero where a class has no examples), [C].
    """
    counts = torch.bincount(labels, minlength=num_classes)
    totals = torch.zeros(num_classes, routing.shape[1], dtype=torch.float64)
    totals.index_add_(0, labels, routing.double())
    return totals / counts.clamp_min(1)[:, None], counts


@dataclass(frozen=True)
class RoutingTables:
    """The mean routing of all examples and of some of them; NaN where there are none."""

    entropy: float
    """Mean entropy of an example's routing in nats, from 0 to log M."""
    load: Tensor
    """[M] mean routing of all examples."""
    by_domain: Tensor
    """[K, M] P(e | d)"""
    by_class: Tensor
    """[C, M] P(e | y)"""
    by_domain_and_class: Tensor
    """[K, C, M] P(e | d, y)"""


class RoutingTally:
    """Adds up routing, batch by batch."""

    def __init__(self, *, num_domains: int, num_classes: int, num_experts: int) -> None:
        self._totals = torch.zeros(num_domains, num_classes, num_experts, dtype=torch.float64)
        self._counts = torch.zeros(num_domains, num_classes, dtype=torch.long)
        self._entropy = 0.0

    def update(self, routing: Tensor, labels: Tensor, domains: Tensor) -> None:
        """Add a batch: routing [B, M], labels [B], domains [B]."""
        routing = routing.double()
        self._totals.index_put_((domains, labels), routing, accumulate=True)
        self._counts.index_put_((domains, labels), torch.ones_like(labels), accumulate=True)
        self._entropy += float(entropy(routing).sum())

    def result(self) -> RoutingTables:
        """Return the means so far."""
        totals, counts = self._totals, self._counts
        return RoutingTables(
            entropy=self._entropy / number if (number := int(counts.sum())) else math.nan,
            load=totals.sum((0, 1)) / counts.sum(),
            by_domain=totals.sum(1) / counts.sum(1)[:, None],
            by_class=totals.sum(0) / counts.sum(0)[:, None],
            by_domain_and_class=totals / counts[..., None],
        )


def entropy(distributions: Tensor) -> Tensor:
    """Return the entropy in nats of distributions [*, M]: [*]."""
    summands: Tensor = torch.special.entr(distributions)
    return summands.sum(-1)


def load_deviation(load: Tensor) -> float:
    """Return the standard deviation over the experts of their mean routing [M]; they are all there are, so ddof = 0.

    To be read together with the entropy: routing that uses all experts a little has a low one, too.
    """
    return float(load.std(correction=0))


def dead_rate(load: Tensor, *, threshold: float = DEAD_BELOW) -> float:
    """Return the share of experts whose mean routing, one of load [M], is below the threshold: 1 % by default."""
    return float((load < threshold).double().mean())


def template_divergence(cells: Tensor) -> float:
    """Return how much the routing of a class differs between domains: cells [K, C, M], NaN where there are none.

    The template of a class is the mean of its domains' routing. The answer is the mean, over domains and classes, of
    the Jensen-Shannon divergence from a domain's routing of the class to the template, from 0 to log 2. Classes that
    only one domain has are left out, for there is nothing to compare; NaN where no class is left.
    """
    present = ~cells.isnan().any(-1)
    shared = present & (present.sum(0) > 1)
    template = cells.nanmean(0).expand_as(cells)
    return float(jensen_shannon(cells[shared], template[shared]).mean())


def jensen_shannon(p: Tensor, q: Tensor) -> Tensor:
    """Return the Jensen-Shannon divergence in nats of distributions [*, M]: [*]."""
    return entropy((p + q) / 2) - (entropy(p) + entropy(q)) / 2
