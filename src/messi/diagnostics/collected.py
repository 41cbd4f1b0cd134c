"""What is kept of a recording: all but the outputs of the experts, which are added up as they come.

Legend: N examples, C classes, M experts, D and R features.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from messi.algorithms.common.base import Algorithm
from messi.core.records import Role
from messi.data.loader import Loader
from messi.diagnostics.specialisation import Specialisation, SpecialisationTally
from messi.diagnostics.trace import Trace, trace

Router = Literal["none", "head", "blocks"]
"""Where the method has experts."""
PER_DOMAIN, IN_ALL = 2_000, 20_000
"""Examples of a domain, and of a role, that are looked at; evenly spaced where there are more."""


@dataclass(frozen=True, kw_only=True)
class Observed:
    """What a model did with N examples in one role; None for what a method does not have or tell."""

    role: Role
    domain_names: tuple[str, ...]
    examples: Tensor
    """[N] their indices in the data."""
    labels: Tensor
    """[N]"""
    domains: Tensor
    """[N] indices into ``domain_names``."""
    logits: Tensor
    """[N, C]"""
    encoded: Tensor | None = None
    """[N, D]"""
    classified: Tensor | None = None
    """[N, R]"""
    routing: Tensor | None = None
    """[N, M]"""
    router: Router
    specialisation: Specialisation | None


def observe(algorithm: Algorithm, loader: Loader, role: Role) -> Observed | None:
    """Look at a role, at no more examples than said above; None where it has no data."""
    sealed = loader.data
    domains = sealed.domains(role)
    if not domains:
        return None
    kept: dict[str, list[Tensor]] = {}
    tally: SpecialisationTally | None = None
    router: Router = "none"
    for one in trace(algorithm, loader, role, most=max(min(PER_DOMAIN, IN_ALL // len(domains)), 1)):
        for name, tensor in _rows(one).items():
            kept.setdefault(name, []).append(tensor)
        if one.inside.experts is not None:
            router = one.experts.place
            tally = tally or SpecialisationTally(len(one.experts.outputs))
            tally.update(one.experts.outputs)
    return Observed(
        role=role,
        domain_names=tuple(sealed.domain_names[domain] for domain in domains),
        router=router,
        specialisation=tally.result() if tally else None,
        **{name: torch.cat(parts) for name, parts in kept.items()},
    )


def _rows(one: Trace) -> dict[str, Tensor]:
    inside = one.inside
    rows = {
        "examples": one.examples,
        "labels": one.labels,
        "domains": one.domains,
        "logits": inside.logits,
        "encoded": inside.encoded,
        "classified": inside.classified,
        "routing": inside.experts.routing if inside.experts else None,
    }
    return {name: tensor for name, tensor in rows.items() if tensor is not None}
