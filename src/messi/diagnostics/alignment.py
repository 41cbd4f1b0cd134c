"""How far the domains of a class are apart, by the energy distance of their features.

Time and memory grow with the square of a class's examples: take a sample with ``at_most_per_cell`` first.
Legend: ``*`` leading dimensions, B examples, R features, K domains, P pairs of domains, C classes, M experts.
"""

import torch
from torch import Tensor

from messi.core.errors import MessiError
from messi.diagnostics.slots import domain_pairs
from messi.discrepancy.energy import energy_distances


def class_conditional_energy(
    features: Tensor, labels: Tensor, domains: Tensor, *, num_classes: int, num_domains: int
) -> Tensor:
    """Return the distance of every two domains within every class, NaN where one of them does not have it.

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
    """Return the mean distance of a run's expert outputs on slots that were chosen, by this run or by another one.

    Shapes: distances [M, P, C] as ``class_conditional_energy`` gives them, chosen [P, C, M] a mask.
    """
    distances = distances.permute(1, 2, 0)[chosen]
    if distances.isnan().any():
        raise MessiError(
            f"{int(distances.isnan().sum())} of the {len(distances)} chosen slots have no examples here; "
            "choose slots from the same examples as those that are measured."
        )
    return float(distances.mean())
