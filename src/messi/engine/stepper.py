"""One update of the weights: the only file that knows the optimizer and the precision of a training step."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from torch import Tensor, nn

from messi.algorithms.common.base import Algorithm, Group
from messi.algorithms.common.inference import autocast
from messi.core.batch import LossTerms
from messi.core.config import OPEN, Bounds, Config, LogUniform, SmallImages
from messi.core.errors import MessiError
from messi.core.processes import Processes
from messi.engine.mean_gradients import MeanGradients
from messi.models.encoder import Encoder
from messi.models.layer_depth import layers_below_head

Flatness = Literal["none", "sam", "sagm"]


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig(Config):
    """How weights are updated."""

    learning_rate: Annotated[float, Bounds(above=0), LogUniform(-5, -3.5), SmallImages(LogUniform(-4.5, -2.5))] = OPEN
    """Learning rate of Adam, constant."""
    weight_decay: Annotated[float, Bounds(minimum=0), LogUniform(-6, -2), SmallImages(None)] = OPEN
    """Weight decay of Adam."""
    head_weight_decay: Annotated[float, Bounds(minimum=0)] | None = None
    """Weight decay of all parameters outside the encoder; by default the same as in the encoder."""
    layer_decay: Annotated[float, Bounds(above=0, maximum=1)] = 1.0
    """Factor by which the learning rate shrinks from each layer of the encoder to the one below it."""
    probe_steps: Annotated[int, Bounds(minimum=0)] = 0
    """Number of initial steps in which the encoder is frozen; the optimizer is reset after them."""
    probe_learning_rate: Annotated[float, Bounds(above=0)] = 1e-3
    """Learning rate of Adam in these steps."""
    flatness: Flatness = "none"
    """Look for flat minima, with any method: by SAM or by SAGM."""
    flatness_radius: Annotated[float, Bounds(above=0)] = 0.05
    """Radius (rho) of the ascent step of SAM and SAGM."""
    sagm_alpha: Annotated[float, Bounds(minimum=0)] = OPEN
    """SAGM's alpha: fraction of the gradient subtracted from the ascent step."""


class AdamStepper:
    """Adam with constant learning rates, one optimizer for each group of a method's parameters.

    In the first steps only the head may be trained, and the layers of the encoder may have lower learning rates
    (docs/algorithms/fine_tuning.md). SAM replaces the gradient by the one at a point uphill, and SAGM by the mean of
    both, which leads away from sharp minima (docs/algorithms/sam.md).
    """

    def __init__(self, algorithm: Algorithm, config: OptimizerConfig, processes: Processes | None = None) -> None:
        self.device = next(algorithm.parameters()).device
        self._buffers = list(algorithm.buffers())
        self._flatness, self._radius = config.flatness, config.flatness_radius
        self._alpha = config.sagm_alpha if config.flatness == "sagm" else 0.0
        self._algorithm = algorithm
        self._encoders = [module for module in algorithm.modules() if isinstance(module, Encoder)]
        self._means = MeanGradients(processes, self._encoders) if processes else None
        self._probe = range(1, config.probe_steps + 1)
        self.probing = False
        """Whether the encoder is frozen."""
        below_head = {p: n for encoder in self._encoders for p, n in layers_below_head(encoder.network).items()}
        if self._probe and all(encoder.tuning.kind == "head" for encoder in self._encoders):
            raise MessiError("probe_steps requires an encoder that trains; omit --probe-steps or --tune head.")
        if self._probe and all(parameter in below_head for parameter in algorithm.parameters()):
            raise MessiError(
                f"probe_steps requires parameters outside the encoder, but {type(algorithm).__name__} has none; omit "
                "--probe-steps."
            )
        self.optimizers = {
            name: torch.optim.Adam(
                _settings(group, config, below_head),
                betas=group.betas,
                fused=self.device.type in ("cuda", "cpu") or None,
                capturable=self.device.type == "cuda",  # counts its steps on the device
            )
            for name, group in algorithm.groups().items()
        }

    def begin(self, step: int) -> None:
        """Prepare a step: freeze the encoder during the probe, and reset the optimizer where training restarts."""
        probing = step in self._probe
        if probing != self.probing:
            self._switch(probing=probing)
        if step == self._algorithm.restart or (self._probe and step == self._probe.stop):
            self.reset()

    def _switch(self, *, probing: bool) -> None:
        self.probing = probing
        for encoder in self._encoders:
            if probing:
                encoder.freeze()
            else:
                encoder.unfreeze()
        for optimizer in self.optimizers.values():
            for settings in optimizer.param_groups:
                settings["lr"] = settings["probe_lr" if probing else "full_lr"]

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
        """Add the gradient of a loss to the parameters' gradients."""
        with autocast(self._algorithm, self.device, training=True):
            terms = loss()
        total(terms).backward()
        if self._means:
            self._means.finish()
        # Detached: their graph would keep this step's memory and CUDA stream alive in the next step.
        return {name: term.detach() for name, term in terms.items()}


def _settings(group: Group, config: OptimizerConfig, below_head: dict[nn.Parameter, int]) -> list[dict[str, Any]]:
    """Return Adam's groups: the parameters of a method's group by learning rate and weight decay, in their order."""
    rate = group.learning_rate or config.learning_rate
    head_decay = config.weight_decay if config.head_weight_decay is None else config.head_weight_decay
    parts: dict[tuple[float, float], list[nn.Parameter]] = {}
    for parameter in (one for one in group.parameters if one.requires_grad):
        decay = config.weight_decay if parameter in below_head else head_decay
        scale = config.layer_decay ** below_head.get(parameter, 0)
        parts.setdefault((rate * scale, decay), []).append(parameter)
    probe_rate = group.learning_rate or config.probe_learning_rate
    return [
        {"params": parameters, "lr": lr, "full_lr": lr, "probe_lr": probe_rate, "weight_decay": decay}
        for (lr, decay), parameters in parts.items()
    ]


def total(terms: LossTerms) -> Tensor:
    """Return the loss: the sum of its terms."""
    return torch.stack(list(terms.values())).sum()
