"""One update of the weights: the only file that knows the optimizer and the precision of a training step."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from messi.algorithms.common.base import Algorithm
from messi.algorithms.common.inference import autocast
from messi.core.batch import LossTerms
from messi.core.config import OPEN, Bounds, Config

Flatness = Literal["none", "sam", "sagm"]


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig(Config):
    """How weights are updated."""

    learning_rate: Annotated[float, Bounds(above=0)] = OPEN
    """Learning rate of Adam, constant."""
    weight_decay: Annotated[float, Bounds(minimum=0)] = OPEN
    """Weight decay of Adam."""
    flatness: Flatness = "none"
    """Look for flat minima, with any method: by SAM or by SAGM."""
    flatness_radius: Annotated[float, Bounds(above=0)] = 0.05
    """Radius (rho) of the ascent step of SAM and SAGM."""
    sagm_alpha: Annotated[float, Bounds(minimum=0)] = OPEN
    """SAGM's alpha: fraction of the gradient subtracted from the ascent step."""


class AdamStepper:
    """Adam with a constant learning rate, one optimizer for each group of a method's parameters.

    SAM replaces the gradient by the one at a point uphill, and SAGM by the mean of both, which leads away from sharp
    minima (docs/algorithms/sam.md).
    """

    def __init__(self, algorithm: Algorithm, config: OptimizerConfig) -> None:
        self.device = next(algorithm.parameters()).device
        self._buffers = list(algorithm.buffers())
        self._flatness, self._radius = config.flatness, config.flatness_radius
        self._alpha = config.sagm_alpha if config.flatness == "sagm" else 0.0
        on_gpu = self.device.type == "cuda"
        self.optimizers = {
            name: torch.optim.Adam(
                group.parameters,
                lr=group.learning_rate or config.learning_rate,
                betas=group.betas,
                weight_decay=config.weight_decay,
                fused=on_gpu or None,
                capturable=on_gpu,  # counts its steps on the device
            )
            for name, group in algorithm.groups().items()
        }

    def descend(self, loss: Callable[[], LossTerms], group: str = "main") -> LossTerms:
        """Update a group of parameters by the gradient of the sum of the terms, and return the terms."""
        optimizer = self.optimizers[group]
        optimizer.zero_grad(set_to_none=True)
        terms = self._differentiate(loss)
        if self._flatness != "none":
            self._look_uphill(loss, optimizer)
        optimizer.step()
        return terms

    def reset(self) -> None:
        """Forget all past gradients, as at the start of training. In place: a captured step uses these tensors."""
        for optimizer in self.optimizers.values():
            for state in optimizer.state.values():
                for value in state.values():
                    value.zero_()

    def _look_uphill(self, loss: Callable[[], LossTerms], optimizer: torch.optim.Optimizer) -> None:
        """Replace the gradients by those at w + (radius / |g| - alpha) g, for SAGM by the mean of both.

        Weights are restored afterwards, and so are buffers such as running means, which must see each batch once.
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
        """Add the gradient of a loss to the parameters' gradients; bfloat16 on a GPU, float32 on a CPU."""
        with autocast(self.device):
            terms = loss()
        total(terms).backward()
        # Detached: their graph would keep this step's memory and CUDA stream alive in the next step.
        return {name: term.detach() for name, term in terms.items()}


def total(terms: LossTerms) -> Tensor:
    """Return the loss: the sum of its terms."""
    return torch.stack(list(terms.values())).sum()
