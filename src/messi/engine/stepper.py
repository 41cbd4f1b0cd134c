"""The only file that knows the optimizer and the precision of a training step."""

from collections.abc import Callable

import torch
from torch import Tensor

from messi.algorithms._base import Algorithm
from messi.core.batch import LossTerms
from messi.evaluation.predict import autocast


class AdamStepper:
    """Adam with a constant learning rate, one for each group of a method's parameters."""

    def __init__(self, algorithm: Algorithm, *, learning_rate: float, weight_decay: float) -> None:
        self.device = next(algorithm.parameters()).device
        on_gpu = self.device.type == "cuda"
        self.optimizers = {
            name: torch.optim.Adam(
                group.parameters,
                lr=group.learning_rate or learning_rate,
                betas=group.betas,
                weight_decay=weight_decay,
                fused=on_gpu or None,
                capturable=on_gpu,  # counts its steps on the device
            )
            for name, group in algorithm.groups().items()
        }

    def descend(self, loss: Callable[[], LossTerms], group: str = "main") -> LossTerms:
        """Take one step of a group down the gradient of the sum of the terms; return the terms."""
        optimizer = self.optimizers[group]
        optimizer.zero_grad(set_to_none=True)
        terms = self._differentiate(loss)
        optimizer.step()
        return terms

    def reset(self) -> None:
        """Forget all past gradients, as if training began now. In place: a recorded step goes on with these tensors."""
        for optimizer in self.optimizers.values():
            for state in optimizer.state.values():
                for value in state.values():
                    value.zero_()

    def _differentiate(self, loss: Callable[[], LossTerms]) -> LossTerms:
        """Add the gradient of a loss to those of the parameters; bfloat16 on a GPU, float32 on a CPU."""
        with autocast(self.device):
            terms = loss()
        total(terms).backward()
        # Without the graph behind them, which would keep this step's memory and stream alive in the next.
        return {name: term.detach() for name, term in terms.items()}


def total(terms: LossTerms) -> Tensor:
    """Return the loss: the sum of its terms."""
    return torch.stack(list(terms.values())).sum()
