"""What the router does, measured on its recorded weights.

Legend: N examples, M experts, C classes, K domains.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from messi.diagnostics.recording import Observed, Recording
from messi.diagnostics.to_json import cells

DEAD_BELOW = 0.01
"""An expert whose mean routing mass is below this is reported as dead."""


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
    """Mean routing of all examples, by domain, by class, and by both; NaN where there are no examples."""

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
    """Accumulates routing batch by batch."""

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
    """Return the standard deviation (ddof = 0) of the mean routing over the experts: load [M].

    Read it together with the entropy: routing that uses all experts a little also has a low deviation.
    """
    return float(load.std(correction=0))


def dead_rate(load: Tensor, *, threshold: float = DEAD_BELOW) -> float:
    """Return the fraction of experts whose load [M] is below the threshold, by default 1 %."""
    return float((load < threshold).double().mean())


def template_divergence(table: Tensor) -> float:
    """Return how much the routing of a class differs between domains: table [K, C, M], NaN where there are no examples.

    The template of a class is the mean routing over its domains. The result is the mean, over domains and classes, of
    the Jensen-Shannon divergence between a domain's routing of the class and the template, from 0 to log 2. Classes
    that occur in only one domain are left out; NaN if no class remains.
    """
    present = ~table.isnan().any(-1)
    shared = present & (present.sum(0) > 1)
    template = table.nanmean(0).expand_as(table)
    return float(jensen_shannon(table[shared], template[shared]).mean())


def jensen_shannon(p: Tensor, q: Tensor) -> Tensor:
    """Return the Jensen-Shannon divergence in nats of distributions [*, M]: [*]."""
    return entropy((p + q) / 2) - (entropy(p) + entropy(q)) / 2


def routing_tables(observed: Observed, num_classes: int) -> RoutingTables | None:
    """Return the mean routing of the recorded examples; None if the method has no router."""
    if observed.routing is None:
        return None
    num_domains, num_experts = len(observed.domain_names), observed.routing.shape[1]
    tally = RoutingTally(num_domains=num_domains, num_classes=num_classes, num_experts=num_experts)
    tally.update(observed.routing, observed.labels, observed.domains)
    return tally.result()


def part(recording: Recording) -> dict[str, Any]:
    """Return what the router does with the source domains.

    P(e | d, y) is not included: the records contain it for all examples, including the target's.
    """
    tables = routing_tables(recording.source, recording.num_classes) if recording.source else None
    if tables is None:
        return {}
    return {
        "routing": {
            "entropy": tables.entropy,
            "load": tables.load,
            "load_std": load_deviation(tables.load),
            "dead_threshold": DEAD_BELOW,
            "dead_rate": dead_rate(tables.load),
            "template_divergence": template_divergence(tables.by_domain_and_class),
            "by_domain": tables.by_domain,
            "by_class": cells(tables.by_class),
        }
    }
