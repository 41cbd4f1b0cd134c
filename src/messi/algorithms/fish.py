"""Fish: gradients of the domains shall point the same way (Shi et al., 2022)."""

import copy
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor
from torch.nn import functional

from messi.algorithms.common.base import Algorithm, AlgorithmConfig, Group, Stepper, inspect_linear
from messi.core.batch import Batch, Inspection, LossTerms, Prediction, Task
from messi.core.config import Bounds, OneOf
from messi.core.split_by_domain import SplitByDomain
from messi.models.encoder import EncoderConfig
from messi.models.network import build_network
from messi.models.weight_sync import approach, overwrite


class Fish(Algorithm):
    """A copy of the network steps on one domain after the other; the network follows it part of the way."""

    @dataclass(frozen=True, kw_only=True)
    class Config(AlgorithmConfig):
        """DomainBed's value."""

        meta_learning_rate: Annotated[float, Bounds(above=0, maximum=1), OneOf((0.05, 0.1, 0.5))] = 0.5
        """Share of the copy's way that the network goes."""

    def __init__(self, config: Config, *, task: Task, encoder: EncoderConfig) -> None:
        super().__init__()
        self.config, self.task = config, task
        self.network = build_network(encoder, task)
        self.inner = copy.deepcopy(self.network)
        self._rows = SplitByDomain()

    def groups(self) -> dict[str, Group]:
        """Return the copy alone: the network has no optimizer."""
        return {"main": Group(list(self.inner.parameters()))}

    def phase(self, step: int) -> str:  # noqa: ARG002
        """Return the same for every step."""
        return "all"

    def update(self, batch: Batch, stepper: Stepper) -> LossTerms:
        """Step the copy once for every domain in the batch, in random order, and follow it."""
        rows = self._rows(batch.domains)
        order = torch.rand(len(rows), device=rows.device).argsort()
        overwrite(self.inner, self.network)
        risks = [self._step(batch.inputs[row], batch.labels[row], stepper) for row in rows[order]]
        approach(self.network, self.inner, self.config.meta_learning_rate)
        return {"cls": torch.stack(risks).mean()}

    def _step(self, inputs: Tensor, labels: Tensor, stepper: Stepper) -> Tensor:
        """Step the copy on one domain; return the risk before it."""
        terms = stepper.descend(lambda: {"cls": functional.cross_entropy(self.inner(inputs).float(), labels)})
        return terms["cls"]

    def predict(self, inputs: Tensor) -> Prediction:
        """Classify with the network."""
        return Prediction(logits=self.network(inputs))

    def inspect(self, inputs: Tensor) -> Inspection:
        """Classify, and keep the features."""
        return inspect_linear(inputs, *self.network)
