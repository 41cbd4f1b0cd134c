"""The only file that knows the optimizer."""

import torch
from torch import Tensor

from messi.algorithms._base import Algorithm
from messi.core.batch import LossTerms


class AdamStepper:
    """Adam with a constant learning rate over all parameters of a method."""

    def __init__(self, algorithm: Algorithm, *, learning_rate: float, weight_decay: float) -> None:
        self.optimizer = torch.optim.Adam(algorithm.parameters(), lr=learning_rate, weight_decay=weight_decay)

    def descend(self, terms: LossTerms) -> None:
        """Take one step down the gradient of the sum of the terms."""
        self.optimizer.zero_grad(set_to_none=True)
        total(terms).backward()
        self.optimizer.step()


def total(terms: LossTerms) -> Tensor:
    """Return the loss: the sum of its terms."""
    return torch.stack(list(terms.values())).sum()
