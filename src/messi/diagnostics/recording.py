"""Recording what a model does with the examples of a role. All diagnostics are computed from a recording.

Legend: B examples of a batch, N examples of a role, C classes, M experts, D and R features.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from messi.algorithms.common.base import Algorithm
from messi.algorithms.common.inference import autocast, batch_size, evaluating
from messi.algorithms.messi import MESSI
from messi.core.batch import ExpertUse, Inspection
from messi.core.errors import MessiError
from messi.core.records import Role
from messi.data.loader import Loader
from messi.data.sealed_data import SealedData
from messi.diagnostics.sampling import spaced
from messi.diagnostics.specialisation import Specialisation, SpecialisationTally
from messi.losses.ssi.slots import SlotRule

Router = Literal["none", "head", "blocks"]
"""Where the method has experts."""
PER_DOMAIN, IN_ALL = 2_000, 20_000
"""Maximum number of recorded examples per domain and per role; evenly spaced if there are more."""


@dataclass(frozen=True)
class Trace:
    """What a model did with B examples of one domain, in float32 on the CPU."""

    examples: Tensor
    """[B] indices into the data."""
    labels: Tensor
    """[B]"""
    domains: Tensor
    """[B] positions in ``data.domains(role)``, not domain indices of the data."""
    inside: Inspection

    @property
    def experts(self) -> ExpertUse:
        """What the experts did; raises an error if the method has none."""
        if self.inside.experts is None:
            raise MessiError(
                "This method has no router, so its routing and experts cannot be measured; choose a method with a "
                "router, such as messi or gmoe."
            )
        return self.inside.experts


@dataclass(frozen=True, kw_only=True)
class Observed:
    """What a model did with N examples of one role; fields that the method does not provide are None."""

    role: Role
    domain_names: tuple[str, ...]
    examples: Tensor
    """[N] indices into the data."""
    labels: Tensor
    """[N]"""
    domains: Tensor
    """[N] indices into ``domain_names``."""
    logits: Tensor
    """[N, C]"""
    encoded: Tensor | None = None
    """[N, D] features of the encoder."""
    classified: Tensor | None = None
    """[N, R] input of the classifier."""
    routing: Tensor | None = None
    """[N, M]"""
    router: Router
    specialisation: Specialisation | None


@dataclass(frozen=True)
class Recording:
    """What the selected model of a run did with both roles; a role without data is None."""

    source: Observed | None
    target: Observed | None
    data: SealedData
    accuracy: Mapping[str, Mapping[str, float]]
    """By role, "source_val" and "target", and domain; of all examples, not only the recorded ones."""
    slot_rule: SlotRule

    @property
    def roles(self) -> list[Observed]:
        """The roles with data, the source domains first."""
        return [one for one in (self.source, self.target) if one is not None]

    @property
    def num_classes(self) -> int:
        """C, the number of classes of the data."""
        return len(self.data.classes)


def record(algorithm: Algorithm, loader: Loader, accuracy: Mapping[str, Mapping[str, float]]) -> Recording:
    """Record the held-out part of the source domains, and the target, which must be open."""
    source, target = observe(algorithm, loader, "source_val"), observe(algorithm, loader, "target")
    return Recording(source, target, loader.data, accuracy, slot_rule(algorithm))


def slot_rule(algorithm: Algorithm) -> SlotRule:
    """Return how a model weights its slots; the paper's rule for a method without slots."""
    return algorithm.slot_rule if isinstance(algorithm, MESSI) else SlotRule()


def observe(algorithm: Algorithm, loader: Loader, role: Role) -> Observed | None:
    """Record at most ``IN_ALL`` examples of a role; None if it has no data.

    The outputs of the experts are too large to keep: they are added up batch by batch.
    """
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


def trace(algorithm: Algorithm, loader: Loader, role: Role, *, most: int | None = None) -> Iterator[Trace]:
    """Yield batch by batch what a model does with a role, or with ``most`` evenly spaced examples per domain.

    Images are not augmented, even if the protocol augments validation images.
    """
    sealed = loader.data
    with evaluating(algorithm):
        for number, domain in enumerate(sealed.domains(role)):
            indices = sealed.indices(role, domain)
            if most is not None:
                indices = indices[spaced(len(indices), most)]
            chunks = indices.split(batch_size(loader.device))
            for chunk, inputs in zip(chunks, loader.inputs(chunks), strict=True):
                with torch.no_grad(), autocast(algorithm, loader.device):
                    inside = algorithm.inspect(inputs)
                yield Trace(
                    examples=chunk,
                    labels=sealed.labels(chunk),
                    domains=torch.full_like(chunk, number),
                    inside=_on_cpu(inside),
                )


def _on_cpu(inside: Inspection) -> Inspection:
    def moved(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else tensor.float().cpu()

    experts = inside.experts
    if experts is not None:
        experts = dataclasses.replace(
            experts, routing=experts.routing.float().cpu(), outputs=experts.outputs.float().cpu()
        )
    return Inspection(
        logits=inside.logits.float().cpu(),
        encoded=moved(inside.encoded),
        classified=moved(inside.classified),
        experts=experts,
    )
