"""Fishr: the gradients of single examples shall vary alike in every domain (Rame et al., 2022)."""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from messi.algorithms.erm import ERM
from messi.core.batch import Batch, LossTerms, Task
from messi.core.config import Bounds, LogUniform, Uniform
from messi.discrepancy.domains import membership
from messi.losses.classification import domain_mean_cross_entropy
from messi.losses.gradient_variance import gradient_variances, variance_distance
from messi.models.encoder import EncoderConfig


class Fishr(ERM):
    """ERM and the distance between the domains' variances of the classifier's gradients."""

    @dataclass(frozen=True, kw_only=True)
    class Config(ERM.Config):
        """The paper's values, which are DomainBed's."""

        penalty_weight: Annotated[float, Bounds(minimum=0), LogUniform(1, 4)] = 1e3
        """Weight of the penalty after the first steps."""
        anneal_steps: Annotated[int, Bounds(minimum=0), Uniform(0, 5000)] = 1500
        """Number of first steps, which have no penalty; then the optimizer starts anew."""
        ema: Annotated[float, Bounds(minimum=0, maximum=0.9999), Uniform(0.9, 0.99)] = 0.95
        """Share of the past in the variances."""

    config: Config
    variances: Tensor

    def __init__(self, config: Config, *, task: Task, encoder: EncoderConfig) -> None:
        super().__init__(config, task=task, encoder=encoder)
        self.restart = config.anneal_steps + 1
        shape = (task.num_domains, task.num_classes, self.encoder.width + 1)
        self.register_buffer("variances", torch.zeros(shape))

    def phase(self, step: int) -> bool:
        """Return whether there is a penalty."""
        return step > self.config.anneal_steps

    def loss(self, batch: Batch) -> LossTerms:
        """Return the classification term and the penalty."""
        features = self.encoder(batch.inputs)
        logits = self.classifier(features)
        penalised = self.phase(batch.step)
        members = membership(batch.domains, self.task.num_domains)
        with torch.set_grad_enabled(penalised):  # the moving average sees the first steps, too
            variances = gradient_variances(features, logits, batch.labels, members)
            penalty = variance_distance(self._averaged(variances, members.any(1)), members.any(1))
        return {
            "cls": domain_mean_cross_entropy(logits, batch.labels, batch.domains),
            "fishr": (self.config.penalty_weight if penalised else 0.0) * penalty,
        }

    def _averaged(self, variances: Tensor, present: Tensor) -> Tensor:
        """Take the variances of the present domains into their moving averages.

        These are returned divided by 1 - ema, so that the gradient does not depend on it.
        """
        ema = self.config.ema
        average = torch.where(present[:, None, None], ema * self.variances + (1 - ema) * variances, self.variances)
        self.variances.copy_(average.detach())
        return average / (1 - ema)
