"""What the router does, from its recorded weights.

Legend: N examples, M experts, C classes.
"""

import torch
from torch import Tensor


def mean_routing_by_class(routing: Tensor, labels: Tensor, *, num_classes: int) -> tuple[Tensor, Tensor]:
    """Return P(expert | class) and the number of examples of each class.

    Shapes: routing [N, M], labels [N] -> [C, M] (zero where a class has no examples), [C].
    """
    counts = torch.bincount(labels, minlength=num_classes)
    totals = torch.zeros(num_classes, routing.shape[1], dtype=torch.float64)
    totals.index_add_(0, labels, routing.double())
    return totals / counts.clamp_min(1)[:, None], counts
