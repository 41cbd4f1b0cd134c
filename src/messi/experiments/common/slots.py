"""Which slots routers select, and how far apart the domains are in them; a slot is an expert, two domains and a class.

All slots of a model are measured, so any share of them can be selected later, without the model.
G is Global-MoE, R Random-Subset-MoE and M MESSI.
Legend: M experts, P pairs of domains, C classes.
"""

import statistics
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from messi.algorithms.common.base import Algorithm
from messi.core.seeding import generator
from messi.data.loader import Loader
from messi.diagnostics.alignment import class_conditional_energy, energy_on_slots
from messi.diagnostics.recording import PER_DOMAIN, trace
from messi.diagnostics.routing import RoutingTally
from messi.diagnostics.sampling import PER_CELL, at_most_per_cell
from messi.diagnostics.slots import SHARPNESS, correlation, overlap, responsibilities, top_slots
from messi.experiments.common.measured import Measurement


@dataclass(frozen=True)
class Seen:
    """What a model does with every slot of the held-out part of its source domains; NaN where one has no examples."""

    weights: Tensor
    """[P, C, M] the responsibilities that follow from its own router."""
    apart: Tensor
    """[M, P, C] the energy distance between the domains in the expert's outputs."""
    apart_unit: Tensor
    """[M, P, C] that of outputs at unit length."""


def see(algorithm: Algorithm, loader: Loader) -> Seen:
    """Look at no more than ``PER_DOMAIN`` examples of a domain, for distances at ``PER_CELL`` of a class in it."""
    sealed = loader.data
    sizes = {"num_domains": len(sealed.domains("source_val")), "num_classes": len(sealed.classes)}
    traces = list(trace(algorithm, loader, "source_val", most=PER_DOMAIN))
    labels, domains = torch.cat([one.labels for one in traces]), torch.cat([one.domains for one in traces])
    routing = torch.cat([one.experts.routing for one in traces])
    tally = RoutingTally(**sizes, num_experts=routing.shape[1])
    tally.update(routing, labels, domains)
    rows = at_most_per_cell(labels, domains, most=PER_CELL, generator=generator("slots"))
    outputs = torch.cat([one.experts.outputs for one in traces], dim=1)[:, rows]

    def apart(features: Tensor) -> Tensor:
        return class_conditional_energy(features, labels[rows], domains[rows], **sizes)

    return Seen(
        weights=responsibilities(tally.result().by_domain_and_class),
        apart=apart(outputs),
        apart_unit=apart(functional.normalize(outputs, dim=-1)),
    )


SLOTS = Measurement(
    name="slots",
    what="its slots",
    settings={"sharpness": SHARPNESS, "per_domain": PER_DOMAIN, "per_cell": PER_CELL},
    measure=see,
    kind=Seen,
)


def compare(everywhere: Seen, at_random: Seen, messi: Seen, *, share: float) -> dict[str, float]:
    """Return the columns of the paper's table for three models of the same data, initial weights and split."""
    seen = {"G": everywhere, "R": at_random, "M": messi}
    chosen = {name: top_slots(one.weights, share=share) for name, one in seen.items()}
    numbers: dict[str, float] = {}
    for a, b in (("G", "R"), ("M", "G"), ("M", "R")):
        numbers[f"r({a},{b})"] = correlation(seen[a].weights, seen[b].weights)
        numbers[f"J({a},{b})"] = overlap(chosen[a], chosen[b])
    plain = {name: energy_on_slots(one.apart, chosen["M"]) for name, one in seen.items()}
    unit = {name: energy_on_slots(one.apart_unit, chosen["M"]) for name, one in seen.items()}
    for apart, ending in ((plain, ""), (unit, ", unit")):
        numbers[f"Ctrl. Delta{ending}"] = statistics.fmean((apart["G"], apart["R"]))
        numbers[f"MESSI Delta{ending}"] = apart["M"]
    return numbers
