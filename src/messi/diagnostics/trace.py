"""Recording: what a model does with the examples of a role, batch by batch. All diagnostics are computed from it."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from messi.algorithms.common.base import Algorithm
from messi.algorithms.common.inference import autocast, batch_size, evaluating
from messi.core.batch import ExpertUse, Inspection
from messi.core.errors import MessiError
from messi.core.records import Role
from messi.data.loader import Loader
from messi.diagnostics.sampling import spaced


@dataclass(frozen=True)
class Trace:
    """What a model did with B examples of one domain, in float32 on the CPU."""

    examples: Tensor
    """[B] their indices in the data."""
    labels: Tensor
    """[B]"""
    domains: Tensor
    """[B] places in ``sealed.domains(role)``, not indices of the data's domains."""
    inside: Inspection

    @property
    def experts(self) -> ExpertUse:
        """What the experts did; raises where a method has none."""
        if self.inside.experts is None:
            raise MessiError(
                "This method has no router, so nothing can be said of its routing and its experts; "
                "choose one that has, such as messi or gmoe."
            )
        return self.inside.experts


def trace(algorithm: Algorithm, loader: Loader, role: Role, *, most: int | None = None) -> Iterator[Trace]:
    """Yield what a model does with every domain in a role, or with ``most`` evenly spaced examples of each.

    Images are as they are, also where a protocol augments those that it validates on.
    """
    sealed = loader.data
    with evaluating(algorithm):
        for number, domain in enumerate(sealed.domains(role)):
            indices = sealed.indices(role, domain)
            if most is not None:
                indices = indices[spaced(len(indices), most)]
            chunks = indices.split(batch_size(loader.device))
            for chunk, inputs in zip(chunks, loader.inputs(chunks), strict=True):
                with torch.no_grad(), autocast(loader.device):
                    inside = algorithm.inspect(inputs)
                yield Trace(
                    examples=chunk,
                    labels=sealed.labels(chunk),
                    domains=torch.full_like(chunk, number),
                    inside=_at_hand(inside),
                )


def _at_hand(inside: Inspection) -> Inspection:
    """Return it in float32 on the CPU."""

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
