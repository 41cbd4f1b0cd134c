"""Fishr: make the variance of the per-example gradients equal in all domains (Rame et al., 2022).

The cross-entropy of one example has the gradient  (p - y) z^T  with respect to the weight of a linear classifier and
p - y  with respect to its bias, with the softmax p, the one-hot label y and the features z. The variance over the
examples of a domain is therefore

    v_k = mean (p - y)^2 (z^2)^T  -  (mean (p - y) z^T)^2        element-wise squares, z extended by a 1 for the bias

which takes two matrix products per domain; the B gradients themselves are never computed.
Legend: B examples, C classes, R features, K domains.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor
from torch.nn import functional

from messi.algorithms.erm import ERM
from messi.core.batch import Batch, LossTerms, Task
from messi.core.config import Bounds, LogUniform, Uniform
from messi.discrepancy.domains import membership
from messi.losses.by_domain import domain_mean_cross_entropy, mean_of_present
from messi.models.encoder import EncoderConfig


class Fishr(ERM):
    """ERM plus the distance between the domains' variances of the classifier's gradients."""

    @dataclass(frozen=True, kw_only=True)
    class Config(ERM.Config):
        """The paper's values, which are DomainBed's defaults."""

        penalty_weight: Annotated[float, Bounds(minimum=0), LogUniform(1, 4)] = 1e3
        """Weight of the penalty after the first anneal_steps steps."""
        anneal_steps: Annotated[int, Bounds(minimum=0), Uniform(0, 5000)] = 1500
        """Number of initial steps without the penalty; the optimizer is reset after them."""
        ema: Annotated[float, Bounds(minimum=0, maximum=0.9999), Uniform(0.9, 0.99)] = 0.95
        """Decay of the moving average of the variances."""

    config: Config
    variances: Tensor

    def __init__(self, config: Config, *, task: Task, encoder: EncoderConfig) -> None:
        super().__init__(config, task=task, encoder=encoder)
        self.restart = config.anneal_steps + 1
        shape = (task.num_domains, task.num_classes, self.encoder.width + 1)
        self.register_buffer("variances", torch.zeros(shape))

    def phase(self, step: int) -> bool:
        """Return whether the penalty is applied in this step."""
        return step > self.config.anneal_steps

    def loss(self, batch: Batch) -> LossTerms:
        """Return the classification term and the weighted penalty."""
        features = self.encoder(batch.inputs)
        logits = self.classifier(features)
        penalised = self.phase(batch.step)
        members = membership(batch.domains, self.task.num_domains)
        with torch.set_grad_enabled(penalised):  # the moving average includes the initial steps
            variances = gradient_variances(features, logits, batch.labels, members)
            penalty = variance_distance(self._averaged(variances, members.any(1)), members.any(1))
        return {
            "cls": domain_mean_cross_entropy(logits, batch.labels, batch.domains),
            "fishr": (self.config.penalty_weight if penalised else 0.0) * penalty,
        }

    def _averaged(self, variances: Tensor, present: Tensor) -> Tensor:
        """Update the moving averages of the present domains and return all of them, divided by 1 - ema.

        The division makes the scale of the gradient independent of ema.
        """
        ema = self.config.ema
        average = torch.where(present[:, None, None], ema * self.variances + (1 - ema) * variances, self.variances)
        self.variances.copy_(average.detach())
        return average / (1 - ema)


def gradient_variances(features: Tensor, logits: Tensor, labels: Tensor, members: Tensor) -> Tensor:
    """Return the variance of the classifier's gradients in each domain, 0 for an absent one: [K, C, R + 1].

    Shapes: features [B, R], logits [B, C], labels [B], members bool [K, B]. Computed in float32 at least, because the
    variance is a small difference of large numbers.
    """
    with torch.autocast(features.device.type, enabled=False):
        features, logits = (x if x.dtype == torch.float64 else x.float() for x in (features, logits))
        classes = torch.arange(logits.shape[1], device=labels.device)
        residuals = logits.softmax(-1) - (labels[:, None] == classes).to(logits.dtype)
        inputs = functional.pad(features, (0, 1), value=1.0)
        shares = (members / members.sum(1, keepdim=True).clamp_min(1)).to(logits.dtype)[..., None]
        mean = (shares * residuals).mT @ inputs
        return (shares * residuals.square()).mT @ inputs.square() - mean.square()


def variance_distance(variances: Tensor, present: Tensor) -> Tensor:
    """Return the mean over the present domains of mean((v_k - mean v)^2): variances [K, ...], present [K] -> scalar."""
    flat = variances.flatten(1)
    mean = (flat * present[:, None]).sum(0) / present.sum()
    return mean_of_present((flat - mean).square().mean(1), present)
