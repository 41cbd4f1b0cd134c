"""Which slots routers select, and how far apart the domains are in them; a slot is an expert, two domains and a class.

G is Global-MoE, R Random-Subset-MoE and M MESSI.
Legend: N examples, M experts, R features, P pairs of domains, C classes.
"""

import statistics
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from messi.algorithms._base import Algorithm
from messi.core.seeding import generator
from messi.data.loader import Loader
from messi.diagnostics.alignment import energy_on_slots
from messi.diagnostics.document import PER_CELL
from messi.diagnostics.observed import PER_DOMAIN
from messi.diagnostics.routing import RoutingTally
from messi.diagnostics.sampling import at_most_per_cell
from messi.diagnostics.slots import correlation, overlap, responsibilities, top_slots
from messi.diagnostics.trace import trace


@dataclass(frozen=True)
class Seen:
    """What a model does with the held-out part of its source domains."""

    outputs: Tensor
    """[M, N, R] what every expert says of at most ``PER_CELL`` examples of a class in a domain."""
    labels: Tensor
    """[N]"""
    domains: Tensor
    """[N]"""
    weights: Tensor
    """[P, C, M] the responsibilities that follow from its own router, NaN for slots without examples."""


def see(algorithm: Algorithm, loader: Loader) -> Seen:
    """Look at the held-out part of the source domains, at no more than ``PER_DOMAIN`` examples of each."""
    vault = loader.vault
    traces = list(trace(algorithm, loader, "source_val", most=PER_DOMAIN))
    labels, domains = torch.cat([one.labels for one in traces]), torch.cat([one.domains for one in traces])
    routing = torch.cat([one.experts.routing for one in traces])
    tally = RoutingTally(
        num_domains=len(vault.domains("source_val")), num_classes=len(vault.classes), num_experts=routing.shape[1]
    )
    tally.update(routing, labels, domains)
    rows = at_most_per_cell(labels, domains, most=PER_CELL, stream=generator("slots"))
    outputs = torch.cat([one.experts.outputs for one in traces], dim=1)
    weights = responsibilities(tally.result().by_domain_and_class)
    return Seen(outputs[:, rows], labels[rows], domains[rows], weights)


def compare(everywhere: Seen, at_random: Seen, messi: Seen, *, share: float) -> dict[str, float]:
    """Return the columns of the paper's table for three models of the same data, initial weights and split."""
    seen = {"G": everywhere, "R": at_random, "M": messi}
    chosen = {name: top_slots(one.weights, share=share) for name, one in seen.items()}
    numbers: dict[str, float] = {}
    for a, b in (("G", "R"), ("M", "G"), ("M", "R")):
        numbers[f"r({a},{b})"] = correlation(seen[a].weights, seen[b].weights)
        numbers[f"J({a},{b})"] = overlap(chosen[a], chosen[b])
    for unit, ending in ((False, ""), (True, ", unit")):
        apart = {name: _distance(one, chosen["M"], unit=unit) for name, one in seen.items()}
        numbers[f"Ctrl. Delta{ending}"] = statistics.fmean((apart["G"], apart["R"]))
        numbers[f"MESSI Delta{ending}"] = apart["M"]
    return numbers


def _distance(seen: Seen, chosen: Tensor, *, unit: bool) -> float:
    outputs = functional.normalize(seen.outputs, dim=-1) if unit else seen.outputs
    return energy_on_slots(outputs, seen.labels, seen.domains, chosen)
