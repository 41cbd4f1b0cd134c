"""Which slots are aligned, and how strongly: MESSI's selector and its controls, as changes of what the loss is told.

A slot is an expert and two cells (class, domain) of one class; its weight follows from the routing mass of its cells.
Legend: B examples, M experts.
"""

from typing import Literal

import torch
from torch import Tensor

Selector = Literal["routing", "global", "random", "domain"]
_CERTAIN = 1e6
"""A routing mass whose sigmoid is 1."""


def select(routing: Tensor, labels: Tensor, *, selector: Selector, num_classes: int) -> tuple[Tensor, Tensor]:
    """Return the routing [B, M] and the classes [B] by which slots are found and weighted.

    - ``routing``: as they are.
    - ``global``: every slot of a class has the weight 1.
    - ``random``: every class deals the weights of its slots out to the experts anew, at random: the same weights, and
      so the same sparsity, in other places.
    - ``domain``: classes are not told apart, so whole domains are aligned, by the routing mass of the domain.
    """
    if selector == "global":
        return torch.full_like(routing, _CERTAIN), labels
    if selector == "random":
        dealt = torch.rand(num_classes, routing.shape[1], device=routing.device).argsort(1)
        return routing.gather(1, dealt[labels]), labels
    if selector == "domain":
        return routing, torch.zeros_like(labels)
    return routing, labels
