"""Fish: make the gradients of the domains point in the same direction (Shi et al., 2022)."""

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
from messi.models.encoder import EncoderConfig, build_classifier
from messi.models.weight_sync import approach, overwrite


class Fish(Algorithm):
    """A copy of the network takes one step per domain; the network then moves part of the way towards it."""

    @dataclass(frozen=True, kw_only=True)
    class Config(AlgorithmConfig):
        """DomainBed's default."""

        meta_learning_rate: Annotated[float, Bounds(above=0, maximum=1), OneOf((0.05, 0.1, 0.5))] = 0.5
        """Fraction of the way to the copy that the network moves."""

    def __init__(self, config: Config, *, task: Task, encoder: EncoderConfig) -> None:
        super().__init__()
        self.config, self.task = config, task
        self.network = build_classifier(encoder, task)
        self.inner = copy.deepcopy(self.network)
        self._rows = SplitByDomain()

    def groups(self) -> dict[str, Group]:
        """Return the copy only: the network has no optimizer."""
        return {"main": Group(list(self.inner.parameters()))}

    def phase(self, step: int) -> str:  # noqa: ARG002
        """Return one phase for all steps."""
        return "all"

    def update(self, batch: Batch, stepper: Stepper) -> LossTerms:
        """Step the copy once per domain in the batch, in random order, then move the network towards it."""
        rows = self._rows(batch.domains)
        order = torch.rand(len(rows), device=rows.device).argsort()
        overwrite(self.inner, self.network)
        risks = [self._step(batch.inputs[row], batch.labels[row], stepper) for row in rows[order]]
        approach(self.network, self.inner, self.config.meta_learning_rate)
        return {"cls": torch.stack(risks).mean()}

    def _step(self, inputs: Tensor, labels: Tensor, stepper: Stepper) -> Tensor:
        """Step the copy on one domain; return the risk before the step."""
        terms = stepper.descend(lambda: {"cls": functional.cross_entropy(self.inner(inputs).float(), labels)})
        return terms["cls"]

    def predict(self, inputs: Tensor) -> Prediction:
        """Return the logits of the network."""
        return Prediction(logits=self.network(inputs))

    def inspect(self, inputs: Tensor) -> Inspection:
        """Return the logits and the features."""
        return inspect_linear(inputs, *self.network)
