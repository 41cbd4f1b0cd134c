"""Group DRO: domains with a higher loss receive a higher weight (Sagawa et al., 2020)."""

import math
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from messi.algorithms.erm import ERM
from messi.core.batch import Batch, LossTerms, Task
from messi.core.config import Bounds, LogUniform
from messi.losses.by_domain import domain_cross_entropies
from messi.models.encoder import EncoderConfig


class GroupDRO(ERM):
    """The domain losses, weighted by exponentiated gradient ascent towards the worst domain."""

    @dataclass(frozen=True, kw_only=True)
    class Config(ERM.Config):
        """DomainBed's defaults."""

        eta: Annotated[float, Bounds(minimum=0), LogUniform(-3, -1)] = 1e-2
        """Step size of the domain weights."""

    config: Config
    log_weights: Tensor

    def __init__(self, config: Config, *, task: Task, encoder: EncoderConfig) -> None:
        super().__init__(config, task=task, encoder=encoder)
        # Logarithms: a weight that has been rounded to 0 could never grow again.
        self.register_buffer("log_weights", torch.full((task.num_domains,), -math.log(task.num_domains)))

    def loss(self, batch: Batch) -> LossTerms:
        """Update the weights of the domains in the batch, then return the weighted sum of their losses."""
        logits = self.classifier(self.encoder(batch.inputs))
        losses, _ = domain_cross_entropies(logits, batch.labels, batch.domains, self.task.num_domains)
        # Absent domains have the loss 0, which changes their weight only by the normalisation.
        self.log_weights.copy_((self.log_weights + self.config.eta * losses.detach()).log_softmax(0))
        return {"cls": (self.log_weights.exp() * losses).sum()}
