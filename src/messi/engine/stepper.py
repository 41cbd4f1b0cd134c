"""The only file that knows the optimizer and the precision of a training step."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from messi.algorithms.common.base import Algorithm
from messi.algorithms.common.inference import autocast
from messi.core.batch import LossTerms

Flatness = Literal["none", "sam", "sagm"]


class AdamStepper:
    """Adam with a constant learning rate, one for each group of a method's parameters.

    With ``sam`` or ``sagm`` it steps down the gradient at a point near by, uphill from here, as well as or instead of
    the gradient here, which leads away from sharp minima (docs/algorithms/sam.md).
    """

    def __init__(
        self,
        algorithm: Algorithm,
        *,
        learning_rate: float,
        weight_decay: float,
        flatness: Flatness = "none",
        radius: float = 0.05,
        alpha: float = 1e-3,
    ) -> None:
        self.device = next(algorithm.parameters()).device
        self._buffers = list(algorithm.buffers())
        self._flatness, self._radius = flatness, radius
        self._alpha = alpha if flatness == "sagm" else 0.0
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
        if self._flatness != "none":
            self._look_uphill(loss, optimizer)
        optimizer.step()
        return terms

    def reset(self) -> None:
        """Forget all past gradients, as if training began now. In place: a recorded step goes on with these tensors."""
        for optimizer in self.optimizers.values():
            for state in optimizer.state.values():
                for value in state.values():
                    value.zero_()

    def _look_uphill(self, loss: Callable[[], LossTerms], optimizer: torch.optim.Optimizer) -> None:
        """Replace the gradients by those at w + (radius / |g| - alpha) g, for SAGM by the mean of both.

        Weights come back to where they were, and so do buffers such as running means, which are meant to see a batch
        once.
        """
        weights = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        here = [weight.grad for weight in weights]
        kept = [tensor.detach().clone() for tensor in (*weights, *self._buffers)]
        norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(gradient) for gradient in here]))
        scale = self._radius / (norm + 1e-12) - self._alpha
        with torch.no_grad():
            torch._foreach_add_(weights, [scale * gradient for gradient in here])
        optimizer.zero_grad(set_to_none=True)
        self._differentiate(loss)
        with torch.no_grad():
            torch._foreach_copy_([*weights, *self._buffers], kept)
            if self._flatness == "sagm":
                for weight, gradient in zip(weights, here, strict=True):
                    weight.grad = gradient if weight.grad is None else (weight.grad + gradient) / 2

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
