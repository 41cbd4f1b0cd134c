"""LFME: one expert network per domain guides a network that is trained on all domains (Chen et al., 2024)."""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn import functional

from messi.algorithms.common.base import AlgorithmConfig, LossAlgorithm, inspect_linear
from messi.core.batch import Batch, Inspection, LossTerms, Prediction, Task
from messi.core.config import Bounds, LogUniform
from messi.core.split_by_domain import SplitByDomain
from messi.models.encoder import EncoderConfig, build_classifier


class LFME(LossAlgorithm):
    """A network whose logits are pulled towards the probabilities of the expert for the image's domain."""

    @dataclass(frozen=True, kw_only=True)
    class Config(AlgorithmConfig):
        """The original code's default."""

        guidance_weight: Annotated[float, Bounds(minimum=0), LogUniform(-2, 1)] = 1.0
        """Weight of the squared distance between the logits and the expert's probabilities."""

    def __init__(self, config: Config, *, task: Task, encoder: EncoderConfig) -> None:
        super().__init__()
        self.config, self.task = config, task
        self.network = build_classifier(encoder, task)
        self.experts = nn.ModuleList(build_classifier(encoder, task) for _ in range(task.num_domains))
        self._rows = SplitByDomain()
        self._complete = False
        """Whether the last batch contained every domain."""

    def phase(self, step: int) -> str | None:  # noqa: ARG002
        """Return one phase for all steps, or None if the experts in use depend on the batch."""
        return "all" if self._complete else None

    def loss(self, batch: Batch) -> LossTerms:
        """Return the terms of the network and the sum of the experts' risks; no gradient connects the two."""
        rows = self._rows(batch.domains)
        self._complete = len(rows) == self.task.num_domains
        domains = range(len(rows)) if self._complete else batch.domains[rows[:, 0]].tolist()
        inputs, labels = batch.inputs[rows.ravel()], batch.labels[rows.ravel()]
        parts = inputs.unflatten(0, rows.shape)
        advice = torch.cat([self.experts[k](part) for k, part in zip(domains, parts, strict=True)]).float()
        logits = self.network(inputs).float()
        guidance = functional.mse_loss(logits, advice.detach().softmax(-1))
        return {
            "cls": functional.cross_entropy(logits, labels),
            "guide": self.config.guidance_weight * guidance,
            "experts": len(rows) * functional.cross_entropy(advice, labels),
        }

    def predict(self, inputs: Tensor) -> Prediction:
        """Return the logits of the network; the experts are used only in training."""
        return Prediction(logits=self.network(inputs))

    def inspect(self, inputs: Tensor) -> Inspection:
        """Return the logits and the features."""
        return inspect_linear(inputs, *self.network)
