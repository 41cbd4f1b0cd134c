"""DANN: features from which a discriminator cannot recognise the domain (Ganin et al., 2016).

Legend: B examples, R features.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from messi.algorithms.common.base import Group, Stepper
from messi.algorithms.erm import ERM
from messi.core.batch import Batch, LossTerms, Task
from messi.core.config import Bounds, LogUniform, OneOf, SmallImages
from messi.losses.by_domain import domain_mean_cross_entropy
from messi.models.discriminator import Discriminator
from messi.models.encoder import EncoderConfig


class DANN(ERM):
    """ERM against a domain discriminator; the two are trained alternately."""

    @dataclass(frozen=True, kw_only=True)
    class Config(ERM.Config):
        """DomainBed's defaults."""

        adversary_weight: Annotated[float, Bounds(minimum=0), LogUniform(-2, 2)] = 1.0
        """lambda: weight of the adversarial term."""
        gradient_penalty: Annotated[float, Bounds(minimum=0), LogUniform(-2, 1)] = 0.0
        """Weight of the squared gradient of the discriminator's loss with respect to its input."""
        discriminator_steps: Annotated[int, Bounds(minimum=1), LogUniform(0, 3, base=2)] = 1
        """Discriminator steps before each step of encoder and classifier."""
        discriminator_width: Annotated[int, Bounds(minimum=1), LogUniform(6, 10, base=2)] = 256
        """Width of the discriminator's hidden layers."""
        discriminator_depth: Annotated[int, Bounds(minimum=2), OneOf((3, 4, 5))] = 3
        """Number of the discriminator's linear layers."""
        discriminator_dropout: Annotated[float, Bounds(minimum=0, maximum=0.9), OneOf((0.0, 0.1, 0.5))] = 0.0
        """Dropout in the discriminator's hidden layers."""
        discriminator_learning_rate: Annotated[
            Annotated[float, Bounds(above=0)] | None, LogUniform(-5, -3.5), SmallImages(LogUniform(-4.5, -2.5))
        ] = None
        """The discriminator's learning rate; by default that of the run."""
        momentum: Annotated[float, Bounds(minimum=0, maximum=0.9999), OneOf((0.0, 0.5))] = 0.5
        """Adam's first beta for both networks; the second is 0.9."""

    config: Config
    conditional: ClassVar[bool] = False
    """Whether the discriminator also reads the class."""

    def __init__(self, config: Config, *, task: Task, encoder: EncoderConfig) -> None:
        super().__init__(config, task=task, encoder=encoder)
        self.discriminator = Discriminator(
            self.encoder.width,
            task.num_domains,
            num_classes=task.num_classes if self.conditional else None,
            width=config.discriminator_width,
            depth=config.discriminator_depth,
            dropout=config.discriminator_dropout,
        )

    def groups(self) -> dict[str, Group]:
        """Return one group for each of the two networks, named like the phases."""
        betas = (self.config.momentum, 0.9)
        return {
            "generator": Group([*self.encoder.parameters(), *self.classifier.parameters()], betas=betas),
            "discriminator": Group(
                list(self.discriminator.parameters()), self.config.discriminator_learning_rate, betas
            ),
        }

    def phase(self, step: int) -> str:
        """Return which of the two networks is trained in this step."""
        steps = self.config.discriminator_steps
        return "discriminator" if (step - 1) % (steps + 1) < steps else "generator"

    def update(self, batch: Batch, stepper: Stepper) -> LossTerms:
        """Take a step of the network whose turn it is."""
        return stepper.descend(lambda: self.loss(batch), self.phase(batch.step))

    def loss(self, batch: Batch) -> LossTerms:
        """Return the terms of the network whose turn it is; the others are 0, so that every step has the same terms."""
        if self.phase(batch.step) == "discriminator":
            with torch.no_grad():
                features = self.encoder(batch.inputs)
            none = features.new_zeros((), dtype=torch.float32)
            return {"cls": none, "adv": none, "disc": self._domain_loss(features, batch)}
        features = self.encoder(batch.inputs)
        return {
            "cls": domain_mean_cross_entropy(self.classifier(features), batch.labels, batch.domains),
            "adv": -self.config.adversary_weight * self._domain_loss(features, batch),
            "disc": features.new_zeros((), dtype=torch.float32),
        }

    def _domain_loss(self, features: Tensor, batch: Batch) -> Tensor:
        """Return the discriminator's loss, in float32: it is small and may be differentiated twice."""
        weight = self.config.gradient_penalty
        with torch.autocast(features.device.type, enabled=False):
            features = features.float()
            if weight and not features.requires_grad:
                features.requires_grad_()
            logits = self.discriminator(features, batch.labels)
            if self.conditional:
                loss = domain_mean_cross_entropy(logits, batch.domains, batch.labels)  # every class has the same weight
            else:
                loss = functional.cross_entropy(logits, batch.domains)
            if weight:
                losses = functional.cross_entropy(logits, batch.domains, reduction="none")
                loss = loss + weight * gradient_penalty(losses, features)
            return loss


def gradient_penalty(losses: Tensor, inputs: Tensor) -> Tensor:
    """Return the mean over the examples of |d loss_b / d x_b|^2, a scalar that can be differentiated again.

    ``losses`` [B] depend on ``inputs`` [B, R], each only on its own row.
    """
    (gradients,) = torch.autograd.grad(losses.sum(), inputs, create_graph=True)
    return gradients.square().sum(1).mean()
