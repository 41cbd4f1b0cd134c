"""MLDG: a step that helps some domains shall help the others, too (Li et al., 2018)."""

import copy
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn import functional

from messi.algorithms.common.base import Algorithm, AlgorithmConfig, Group, Stepper, inspect_linear
from messi.core.batch import Batch, Inspection, LossTerms, Prediction, Task
from messi.core.config import Bounds, LogUniform, OneOf
from messi.core.split_by_domain import SplitByDomain
from messi.losses.given_gradient import with_gradient
from messi.models.encoder import EncoderConfig
from messi.models.network import build_network
from messi.models.weight_sync import overwrite


class MLDG(Algorithm):
    """ERM on some domains, and on the others after a trial step on the first; drawn anew at every step."""

    @dataclass(frozen=True, kw_only=True)
    class Config(AlgorithmConfig):
        """DomainBed's values."""

        meta_weight: Annotated[float, Bounds(minimum=0), LogUniform(-1, 1)] = 1.0
        """beta: weight of the risk after the trial step."""
        meta_test_domains: Annotated[int, Bounds(minimum=1), OneOf((1, 2))] = 2
        """Domains that the trial step is tested on; one at least is left to train on."""
        inner_learning_rate: Annotated[float, Bounds(above=0)] | None = None
        """Length of the trial step; by default the learning rate of the run."""

    def __init__(self, config: Config, *, task: Task, encoder: EncoderConfig) -> None:
        super().__init__()
        self.config, self.task = config, task
        self.network = build_network(encoder, task)
        self.inner = copy.deepcopy(self.network)
        self._rows = SplitByDomain()

    def groups(self) -> dict[str, Group]:
        """Return the network and the copy that takes the trial step.

        The copy's Adam has no memory, so every trial step is the first of a new Adam: -rate g / |g| in every entry.
        """
        rate = self.config.inner_learning_rate
        return {
            "main": Group(list(self.network.parameters())),
            "inner": Group(list(self.inner.parameters()), learning_rate=rate, betas=(0.0, 0.0)),
        }

    def phase(self, step: int) -> str:  # noqa: ARG002
        """Return the same for every step."""
        return "all"

    def update(self, batch: Batch, stepper: Stepper) -> LossTerms:
        """Try a step on some domains of the batch, and descend their risk and that of the others after the step."""
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
        """Return the weighted risk of the copy, with its gradient as the network's (first order)."""
        risk = self.config.meta_weight * _risk(self.inner, inputs, labels)
        with torch.autocast(inputs.device.type, enabled=False):  # which is for the forward pass alone
            gradients = torch.autograd.grad(risk, list(self.inner.parameters()), materialize_grads=True)
        return with_gradient(risk, list(self.network.parameters()), gradients)

    def predict(self, inputs: Tensor) -> Prediction:
        """Classify with the network."""
        return Prediction(logits=self.network(inputs))

    def inspect(self, inputs: Tensor) -> Inspection:
        """Classify, and keep the features."""
        return inspect_linear(inputs, *self.network)


def _risk(network: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross-entropy; the domains have equally many examples, so each counts the same."""
    return functional.cross_entropy(network(inputs).float(), labels)


def _part(batch: Batch, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return the inputs and labels of some domains."""
    return batch.inputs[rows.ravel()], batch.labels[rows.ravel()]
