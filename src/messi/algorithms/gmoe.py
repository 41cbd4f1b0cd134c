"""GMoE: a vision transformer whose last blocks choose among copies of their MLP (Li et al., 2023).

L = L_cls + w sum over blocks of (CV^2(importance) + CV^2(load)) / 2
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn

from messi.algorithms.common.base import AlgorithmConfig, LossAlgorithm
from messi.core.batch import Batch, Inspection, LossTerms, Prediction, Task
from messi.core.config import Bounds, LogUniform, OneOf
from messi.losses.classification import domain_mean_cross_entropy
from messi.losses.expert_balance import importance_variation, load_variation
from messi.models.encoder import EncoderConfig
from messi.models.moe_layers import CosineMoeLayer, MoeLayer, Routing
from messi.models.moe_vit import image_routing, inspect_blocks, place_experts, take_routings

Rate = Annotated[float, Bounds(minimum=0, maximum=0.9)]


class GMoE(LossAlgorithm):
    """A vision transformer in which two blocks send every token to one of six copies of their MLP."""

    @dataclass(frozen=True, kw_only=True)
    class Config(AlgorithmConfig):
        """The published values, without the dropout and the stochastic depth that other methods here do not have."""

        num_experts: Annotated[int, Bounds(minimum=2), OneOf((4, 6, 8))] = 6
        """Experts of a block."""
        moe_blocks: tuple[int, ...] = ()
        """Numbers of the blocks with experts, from 0; by default every second of the last third: 8 and 10 of 12."""
        balance_weight: Annotated[float, Bounds(minimum=0), LogUniform(-3, -1)] = 0.01
        """Weight of the unevenness of the experts' use, summed over the blocks."""
        gate_noise: Annotated[float, Bounds(minimum=0)] = 1.0
        """Standard deviation of the noise on the router's logits in training, times the number of experts."""
        expert_dropout: Rate = 0.0
        """Dropout between the layers of an expert; GMoE's own is 0.1."""
        drop_path: Rate = 0.0
        """Chance to leave the last block out in training, falling to 0 for the first; GMoE's own is 0.1."""

    def __init__(self, config: Config, *, task: Task, encoder: EncoderConfig) -> None:
        super().__init__()
        self.config, self.task = config, task
        self.encoder = encoder.build(task.input_shape)
        place_experts(
            self.encoder, self._layer, method=config.name, blocks=config.moe_blocks, drop_path=config.drop_path
        )
        self.classifier = nn.Linear(self.encoder.width, task.num_classes)

    def loss(self, batch: Batch) -> LossTerms:
        """Return the mean over domains of the cross-entropy, and the unevenness of the experts' use."""
        logits = self.classifier(self.encoder(batch.inputs))
        terms = {"cls": domain_mean_cross_entropy(logits, batch.labels, batch.domains)}
        routings, weight = take_routings(self.encoder), self.config.balance_weight
        if weight:
            terms["bal"] = weight * torch.stack([self._unevenness(routing) for routing in routings]).sum()
        return terms

    def predict(self, inputs: Tensor) -> Prediction:
        """Classify; the routing is that of the class token in the last block with experts."""
        logits = self.classifier(self.encoder(inputs))
        gates = take_routings(self.encoder)[-1].gates
        return Prediction(logits=logits, routing=image_routing(self.encoder, gates, len(inputs)))

    def inspect(self, inputs: Tensor) -> Inspection:
        """Classify, and keep what the experts of the last block that has any say of the class token."""
        return inspect_blocks(self.encoder, self.classifier, inputs)

    def _layer(self, mlp: nn.Module) -> MoeLayer:
        config = self.config
        return CosineMoeLayer(
            mlp, num_experts=config.num_experts, noise=config.gate_noise, dropout=config.expert_dropout
        )

    def _unevenness(self, routing: Routing) -> Tensor:
        importance = importance_variation(routing.logits)
        scale = self.config.gate_noise / self.config.num_experts
        if not scale:
            return importance  # without noise a load has no gradient
        return (importance + load_variation(routing.logits, routing.thresholds, scale=scale)) / 2
