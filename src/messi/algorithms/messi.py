"""MESSI: experts that align the class-conditional domain pairs routed to them.

L = L_cls + l_ssi L_ssi + l_sp L_sp + l_bal L_bal + l_div L_div
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from messi.algorithms.common.base import AlgorithmConfig, LossAlgorithm
from messi.core.batch import Batch, ExpertUse, Inspection, LossTerms, Prediction, Task
from messi.core.config import Bounds, LogUniform, OneOf
from messi.core.cuda_streams import run_concurrently
from messi.losses.classification import domain_mean_cross_entropy
from messi.losses.diversity import Form, diversity
from messi.losses.routing import balance, sparsity
from messi.losses.ssi.loss import Discrepancy, EpsilonScale, Reduction, ssi_loss
from messi.losses.ssi.selectors import Selector, select
from messi.models.encoder import EncoderConfig
from messi.models.head import HeadOutput, MessiHead

Weight = Annotated[float, Bounds(minimum=0)]


class MESSI(LossAlgorithm):
    """An encoder with the expert head, trained on the five terms of the paper."""

    @dataclass(frozen=True, kw_only=True)
    class Config(AlgorithmConfig):
        """The paper's values; docs/method.md says how its open points are read."""

        num_experts: Annotated[int, Bounds(minimum=1), OneOf((2, 4, 6, 8))] = 6
        """Number of experts M."""
        ssi_weight: Annotated[Weight, LogUniform(-3, -1)] = 0.01
        """Weight of the subset-conditioned invariance term."""
        sparsity_weight: Annotated[Weight, LogUniform(-3, -1)] = 0.02
        """Weight of the routing entropy."""
        balance_weight: Annotated[Weight, LogUniform(-3, -1)] = 0.02
        """Weight of the distance of the experts' load from uniform."""
        diversity_weight: Annotated[Weight, LogUniform(-3, -1)] = 0.02
        """Weight of the similarity between experts."""
        discrepancy: Discrepancy = "ot"
        """What aligns two cells: entropic optimal transport or squared MMD."""
        selector: Selector = "routing"
        """What decides which slots are aligned: the routing, or one of the controls of docs/algorithms/messi.md."""
        sharpness: Weight = 4.0
        """alpha: how strongly routing mass decides the weight of a slot."""
        reduction: Reduction = "mean"
        """Mean or sum over the active slots."""
        epsilon: Annotated[float, Bounds(above=0)] = 0.1
        """Entropic regularisation of OT."""
        epsilon_scale: EpsilonScale = "relative"
        """Whether epsilon is relative to the batch's mean cost or absolute."""
        iterations: Annotated[int, Bounds(minimum=1)] = 50
        """Sinkhorn rounds of OT."""
        diversity: Form = "cosine"
        """Cosine similarity as the paper's text says, or its equation's Frobenius norm."""
        balance_momentum: Annotated[float, Bounds(minimum=0, maximum=0.9999)] = 0.0
        """Share of the past in the load that is balanced; 0 takes the batch alone."""

    load: Tensor

    def __init__(self, config: Config, *, task: Task, encoder: EncoderConfig) -> None:
        super().__init__()
        self.config, self.task = config, task
        self.encoder = encoder.build(task.input_shape)
        self.head = MessiHead(self.encoder.width, task.num_classes, config.num_experts)
        self.register_buffer("load", torch.full((config.num_experts,), 1 / config.num_experts))

    def loss(self, batch: Batch) -> LossTerms:
        """Return the five weighted terms."""
        out = self.head(self.encoder(batch.inputs))
        config = self.config
        classification, invariance, routing, difference = run_concurrently(
            batch.labels.device,
            lambda: {"cls": domain_mean_cross_entropy(out.logits, batch.labels, batch.domains)},
            lambda: _term("ssi", config.ssi_weight, lambda: self._invariance(out, batch)),
            lambda: {
                **_term("sp", config.sparsity_weight, lambda: sparsity(out.routing)),
                **_term("bal", config.balance_weight, lambda: balance(self._current_load(out.routing))),
            },
            lambda: _term("div", config.diversity_weight, lambda: diversity(out.experts, form=config.diversity)),
        )
        return {**classification, **invariance, **routing, **difference}

    def predict(self, inputs: Tensor) -> Prediction:
        """Classify the routed mixture of the experts."""
        out = self.head(self.encoder(inputs))
        return Prediction(logits=out.logits, routing=out.routing)

    def inspect(self, inputs: Tensor) -> Inspection:
        """Classify, and keep what encoder and experts say."""
        encoded = self.encoder(inputs)
        out = self.head(encoded)
        experts = ExpertUse("head", routing=out.routing, outputs=out.experts)
        return Inspection(logits=out.logits, encoded=encoded, classified=out.mixture, experts=experts)

    def _invariance(self, out: HeadOutput, batch: Batch) -> Tensor:
        config = self.config
        routing, labels = select(out.routing, batch.labels, selector=config.selector, num_classes=self.task.num_classes)
        return ssi_loss(
            out.experts,
            routing,
            labels,
            batch.domains,
            discrepancy=config.discrepancy,
            sharpness=config.sharpness,
            reduction=config.reduction,
            epsilon=config.epsilon,
            epsilon_scale=config.epsilon_scale,
            iterations=config.iterations,
        )

    def _current_load(self, routing: Tensor) -> Tensor:
        momentum = self.config.balance_momentum
        load = momentum * self.load + (1 - momentum) * routing.mean(0)
        if momentum:
            self.load.copy_(load.detach())
        return load


def _term(name: str, weight: float, value: Callable[[], Tensor]) -> LossTerms:
    """Return a weighted term; with a weight of zero there is none."""
    return {name: weight * value()} if weight else {}
