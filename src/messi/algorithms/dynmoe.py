"""DynMoE: tokens choose any number of experts, and experts are added and removed in training (Guo et al., 2025).

    L = L_cls + w sum over blocks of (diversity + simplicity),   over the experts in use:
    diversity  = |(U U^T - I) o mask|_F     U: the expert directions divided by their norms
    simplicity = mean of |w_e|

The direction w_e of an expert is the vector that tokens are compared with. Legend: E expert slots, W width.
"""

import dataclasses
from dataclasses import dataclass
from typing import Annotated, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from messi.algorithms.common.base import AlgorithmConfig, Stepper
from messi.algorithms.common.experts_in_blocks import ExpertsInBlocks
from messi.algorithms.gmoe import Rate
from messi.core.batch import Batch, ExpertUse, Inspection, LossTerms, Prediction, Task
from messi.core.config import Bounds, LogUniform, OneOf
from messi.core.errors import MessiError
from messi.losses.by_domain import domain_mean_cross_entropy
from messi.models.encoder import EncoderConfig
from messi.models.moe_dynamic import DynamicMoeLayer
from messi.models.moe_layers import MoeLayer
from messi.models.moe_vit import image_routing, inspect_blocks, place_experts, release_routings, take_routings


class DynMoE(ExpertsInBlocks):
    """A vision transformer in which two blocks route each token to any number of up to eight experts."""

    @dataclass(frozen=True, kw_only=True)
    class Config(AlgorithmConfig):
        """The published values, but without dropout and stochastic depth, which the other methods here do not use."""

        num_experts: Annotated[int, Bounds(minimum=1), OneOf((4, 6, 8))] = 6
        """Experts per block at the start."""
        max_experts: Annotated[int, Bounds(minimum=1)] = 8
        """Maximum number of experts per block."""
        moe_blocks: tuple[int, ...] = ()
        """Indices of the blocks with experts, from 0; by default every second one of the last third: 8 and 10 of 12."""
        router_weight: Annotated[float, Bounds(minimum=0), LogUniform(-3, -1)] = 0.01
        """Weight of the two terms on the expert directions, summed over the blocks."""
        expert_dropout: Rate = 0.0
        """Dropout between the layers of an expert; the published value is 0.1."""
        drop_path: Rate = 0.0
        """Stochastic depth of the last block, decreasing linearly to 0 for the first; the published value is 0.1."""

    def __init__(self, config: Config, *, task: Task, encoder: EncoderConfig) -> None:
        super().__init__()
        if config.max_experts < config.num_experts:
            raise MessiError(
                f"max_experts must be at least num_experts = {config.num_experts}, but is {config.max_experts}."
            )
        self.config, self.task = config, task
        self.encoder = encoder.build(task.input_shape)
        place_experts(
            self.encoder, self._layer, method=config.name, blocks=config.moe_blocks, drop_path=config.drop_path
        )
        self.classifier = nn.Linear(self.encoder.width, task.num_classes)

    def update(self, batch: Batch, stepper: Stepper) -> LossTerms:
        """Take one step down the loss, then add and remove experts, unless the encoder is frozen."""
        terms = super().update(batch, stepper)
        for layer in self._layers():
            if layer.training:
                layer.adapt()
        return terms

    def loss(self, batch: Batch) -> LossTerms:
        """Return the classification term and the two terms on the expert directions."""
        logits = self.classifier(self.encoder(batch.inputs))
        release_routings(self.encoder)
        terms = {"cls": domain_mean_cross_entropy(logits, batch.labels, batch.domains)}
        weight, layers = self.config.router_weight, self._layers()
        if weight:
            diversity = [direction_diversity(layer.directions, layer.active) for layer in layers]
            simplicity = [direction_simplicity(layer.directions, layer.active) for layer in layers]
            terms["div"] = weight * torch.stack(diversity).sum()
            terms["simp"] = weight * torch.stack(simplicity).sum()
        return terms

    def predict(self, inputs: Tensor) -> Prediction:
        """Return logits and the routing of the class token in the last block with experts; unused slots have 0."""
        logits = self.classifier(self.encoder(inputs))
        gates = take_routings(self.encoder)[-1].gates
        return Prediction(logits=logits, routing=image_routing(self.encoder, gates, inputs.shape[0]))

    def inspect(self, inputs: Tensor) -> Inspection:
        """Return logits, features and the last block's expert outputs for the class token, without unused slots."""
        inspection = inspect_blocks(self.encoder, self.classifier, inputs)
        every, active = cast("ExpertUse", inspection.experts), self._layers()[-1].active
        used = ExpertUse(every.place, routing=every.routing[:, active], outputs=every.outputs[active])
        return dataclasses.replace(inspection, experts=used)

    def _layers(self) -> list[DynamicMoeLayer]:
        return [module for module in self.encoder.modules() if isinstance(module, DynamicMoeLayer)]

    def _layer(self, mlp: nn.Module) -> MoeLayer:
        config = self.config
        return DynamicMoeLayer(
            mlp, num_experts=config.num_experts, max_experts=config.max_experts, dropout=config.expert_dropout
        )


def direction_diversity(directions: Tensor, active: Tensor) -> Tensor:
    """Return how far the active directions are from orthogonal: [E, W], bool [E] -> scalar."""
    unit = functional.normalize(directions.float(), dim=-1)
    identity = torch.eye(len(unit), dtype=unit.dtype, device=unit.device)
    distance: Tensor = ((unit @ unit.mT - identity) * (active[:, None] & active)).norm()
    return distance


def direction_simplicity(directions: Tensor, active: Tensor) -> Tensor:
    """Return the mean length of the active directions, 0 if there is none: [E, W], bool [E] -> scalar."""
    lengths: Tensor = directions.float().norm(dim=-1)
    return (lengths * active).sum() / active.sum().clamp_min(1)
