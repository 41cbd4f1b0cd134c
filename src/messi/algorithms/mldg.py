"""MLDG: a step on some domains should also reduce the risk of the others (Li et al., 2018)."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from messi.algorithms.common.base import Algorithm, AlgorithmConfig, Group, Stepper, inspect_linear
from messi.core.batch import Batch, Inspection, LossTerms, Prediction, Task
from messi.core.config import Bounds, LogUniform, OneOf
from messi.core.split_by_domain import SplitByDomain
from messi.models.encoder import EncoderConfig, build_classifier
from messi.models.weight_sync import overwrite


class MLDG(Algorithm):
    """ERM on some domains, plus the risk of the others after a trial step; the domains are drawn at every step."""

    @dataclass(frozen=True, kw_only=True)
    class Config(AlgorithmConfig):
        """DomainBed's defaults."""

        meta_weight: Annotated[float, Bounds(minimum=0), LogUniform(-1, 1)] = 1.0
        """beta: weight of the risk after the trial step."""
        meta_test_domains: Annotated[int, Bounds(minimum=1), OneOf((1, 2))] = 2
        """Domains that the trial step is tested on; at least one is left for the step itself."""
        inner_learning_rate: Annotated[float, Bounds(above=0)] | None = None
        """Learning rate of the trial step; by default that of the run."""

    def __init__(self, config: Config, *, task: Task, encoder: EncoderConfig) -> None:
        super().__init__()
        self.config, self.task = config, task
        self.network = build_classifier(encoder, task)
        self.inner = copy.deepcopy(self.network)
        self._rows = SplitByDomain()

    def groups(self) -> dict[str, Group]:
        """Return the network and the copy that takes the trial step.

        With betas of 0, Adam keeps no state, so each trial step is the first of a new Adam: -rate g / |g| per entry.
        """
        rate = self.config.inner_learning_rate
        return {
            "main": Group(list(self.network.parameters())),
            "inner": Group(list(self.inner.parameters()), learning_rate=rate, betas=(0.0, 0.0)),
        }

    def phase(self, step: int) -> str:  # noqa: ARG002
        """Return one phase for all steps."""
        return "all"

    def update(self, batch: Batch, stepper: Stepper) -> LossTerms:
        """Take a trial step on some domains, then descend their risk plus the risk of the others after it."""
        rows = self._rows(batch.domains)
        rows = rows[torch.rand(len(rows), device=rows.device).argsort()]
        number = min(self.config.meta_test_domains, len(rows) - 1)
        test, train = _part(batch, rows[:number]), _part(batch, rows[number:])
        if not number:
            none = torch.zeros((), device=rows.device)
            return stepper.descend(lambda: {"cls": _risk(self.network, *train), "meta": none})
        overwrite(self.inner, self.network)
        stepper.descend(lambda: {"cls": _risk(self.inner, *train)}, "inner")
        return stepper.descend(lambda: {"cls": _risk(self.network, *train), "meta": self._risk_after(*test)})

    def _risk_after(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """Return the weighted risk of the copy; its gradient is applied to the network (first order)."""
        risk = self.config.meta_weight * _risk(self.inner, inputs, labels)
        with torch.autocast(inputs.device.type, enabled=False):  # autocast is for the forward pass only
            gradients = torch.autograd.grad(risk, _trained(self.inner), materialize_grads=True)
        return with_gradient(risk, _trained(self.network), gradients)

    def predict(self, inputs: Tensor) -> Prediction:
        """Return the logits of the network."""
        return Prediction(logits=self.network(inputs))

    def inspect(self, inputs: Tensor) -> Inspection:
        """Return the logits and the features."""
        return inspect_linear(inputs, *self.network)


def _risk(network: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross-entropy; the domains have equally many examples, so each has the same weight."""
    return functional.cross_entropy(network(inputs).float(), labels)


def _trained(network: nn.Module) -> list[Tensor]:
    """Return the parameters that are not frozen."""
    return [parameter for parameter in network.parameters() if parameter.requires_grad]


def _part(batch: Batch, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return the inputs and labels of some domains."""
    return batch.inputs[rows.ravel()], batch.labels[rows.ravel()]


def with_gradient(value: Tensor, parameters: Sequence[Tensor], gradients: Sequence[Tensor]) -> Tensor:
    """Return a scalar with a given value and a given gradient with respect to each of the parameters."""
    result: Tensor = _WithGradient.apply(value.detach(), len(parameters), *parameters, *gradients)
    return result


class _WithGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, number: int, *tensors: Tensor) -> Tensor:
        ctx.number = number
        ctx.save_for_backward(*tensors[number:])
        return value.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        scaled = [grad * gradient for gradient in ctx.saved_tensors]
        return None, None, *scaled, *[None] * ctx.number
