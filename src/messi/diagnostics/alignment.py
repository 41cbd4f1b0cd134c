"""Alignment: the energy distance between the domains of a class.

Time and memory grow with the square of the examples per class: take a sample with ``at_most_per_cell`` first.
Legend: ``*`` leading dimensions, B examples, R features, K domains, P pairs of domains, C classes, M experts.
"""

from typing import Any

import torch
from torch import Tensor

from messi.core.errors import MessiError
from messi.diagnostics.recording import Recording
from messi.diagnostics.sampling import PAIRED_DOMAINS, paired_sample
from messi.diagnostics.slots import domain_pairs
from messi.discrepancy.energy import energy_distances


def class_conditional_energy(
    features: Tensor, labels: Tensor, domains: Tensor, *, num_classes: int, num_domains: int
) -> Tensor:
    """Return the distance of every two domains within every class, NaN where one of them lacks the class.

    Shapes: features [*, B, R], labels [B], domains [B] -> [*, P, C].
    """
    pairs = domain_pairs(num_domains)
    first, second = [i for i, _ in pairs], [j for _, j in pairs]
    by_class = []
    for label in range(num_classes):
        rows = (labels == label).nonzero().squeeze(1)
        distances = energy_distances(features[..., rows, :], domains[rows], num_domains)
        by_class.append(distances[..., first, second])
    return torch.stack(by_class, dim=-1)


def energy_on_slots(distances: Tensor, chosen: Tensor) -> float:
    """Return the mean distance of a run's expert outputs on the slots that this or another run selected.

    Shapes: distances [M, P, C] from ``class_conditional_energy``, mask ``chosen`` [P, C, M].
    """
    distances = distances.permute(1, 2, 0)[chosen]
    if distances.isnan().any():
        raise MessiError(
            f"{int(distances.isnan().sum())} of the {len(distances)} selected slots have no examples here; "
            "measure the examples from which the slots were selected."
        )
    return float(distances.mean())


def part(recording: Recording) -> dict[str, Any]:
    """Return how far apart the source domains are in the input of the classifier."""
    source = recording.source
    if source is None or source.classified is None:
        return {}
    rows = paired_sample(source.labels, source.domains)
    energy = class_conditional_energy(
        source.classified[rows],
        source.labels[rows],
        source.domains[rows],
        num_classes=recording.num_classes,
        num_domains=min(len(source.domain_names), PAIRED_DOMAINS),
    )
    if energy.isnan().all():
        return {}
    return {"discrepancy": {"energy": float(energy.nanmean()), "pairs": energy, "examples": len(rows)}}
