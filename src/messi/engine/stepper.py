"""The only file that knows the optimizer and the precision of a training step."""

import torch
from torch import Tensor

from messi.algorithms._base import Algorithm
from messi.core.batch import LossTerms
from messi.evaluation.predict import autocast


class AdamStepper:
    """Adam with a constant learning rate over all parameters of a method."""

    def __init__(self, algorithm: Algorithm, *, learning_rate: float, weight_decay: float) -> None:
        self.device = next(algorithm.parameters()).device
        on_gpu = self.device.type == "cuda"
        self.optimizer = torch.optim.Adam(
            algorithm.parameters(),
            lr=learning_rate,
            weight_decay=weight_decay,
            fused=on_gpu or None,
            capturable=on_gpu,  # counts its steps on the device
        )

    def precision(self) -> torch.autocast:
        """Return the context in which a loss is computed: bfloat16 on a GPU, float32 on a CPU."""
        return autocast(self.device)

    def descend(self, terms: LossTerms) -> None:
        """Take one step down the gradient of the sum of the terms."""
        self.optimizer.zero_grad(set_to_none=True)
        total(terms).backward()
        self.optimizer.step()


def total(terms: LossTerms) -> Tensor:
    """Return the loss: the sum of its terms."""
    return torch.stack(list(terms.values())).sum()
