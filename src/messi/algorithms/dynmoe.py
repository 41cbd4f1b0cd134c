"""DynMoE: tokens choose any number of experts, and experts come and go (Guo et al., 2025).

L = L_cls + w sum over blocks of (diversity + simplicity)
"""

import dataclasses
from dataclasses import dataclass
from typing import Annotated, cast

import torch
from torch import Tensor, nn

from messi.algorithms.common.base import AlgorithmConfig, LossAlgorithm, Stepper
from messi.algorithms.gmoe import Rate
from messi.core.batch import Batch, ExpertUse, Inspection, LossTerms, Prediction, Task
from messi.core.config import Bounds, LogUniform, OneOf
from messi.core.errors import MessiError
from messi.losses.classification import domain_mean_cross_entropy
from messi.losses.expert_directions import direction_diversity, direction_simplicity
from messi.models.encoder import EncoderConfig
from messi.models.moe_dynamic import DynamicMoeLayer
from messi.models.moe_layers import MoeLayer
from messi.models.moe_vit import image_routing, inspect_blocks, place_experts, take_routings


class DynMoE(LossAlgorithm):
    """A vision transformer in which two blocks send a token to any of up to eight experts, as many as are of use."""

    @dataclass(frozen=True, kw_only=True)
    class Config(AlgorithmConfig):
        """The published values, without the dropout and the stochastic depth that other methods here do not have."""

        num_experts: Annotated[int, Bounds(minimum=1), OneOf((4, 6, 8))] = 6
        """Experts of a block at the start."""
        max_experts: Annotated[int, Bounds(minimum=1)] = 8
        """Experts that a block may come to have."""
        moe_blocks: tuple[int, ...] = ()
        """Numbers of the blocks with experts, from 0; by default every second of the last third: 8 and 10 of 12."""
        router_weight: Annotated[float, Bounds(minimum=0), LogUniform(-3, -1)] = 0.01
        """Weight of the two terms on the experts' directions, summed over the blocks."""
        expert_dropout: Rate = 0.0
        """Dropout between the layers of an expert; DynMoE's own is 0.1."""
        drop_path: Rate = 0.0
        """Chance to leave the last block out in training, falling to 0 for the first; DynMoE's own is 0.1."""

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
        """Descend the loss once; then let experts come and go."""
        terms = super().update(batch, stepper)
        for layer in self._layers():
            layer.adapt()
        return terms

    def loss(self, batch: Batch) -> LossTerms:
        """Return the mean over domains of the cross-entropy, and the two terms on the experts' directions."""
        logits = self.classifier(self.encoder(batch.inputs))
        take_routings(self.encoder)
        terms = {"cls": domain_mean_cross_entropy(logits, batch.labels, batch.domains)}
        weight, layers = self.config.router_weight, self._layers()
        if weight:
            diversity = [direction_diversity(layer.directions, layer.active) for layer in layers]
            simplicity = [direction_simplicity(layer.directions, layer.active) for layer in layers]
            terms["div"] = weight * torch.stack(diversity).sum()
            terms["simp"] = weight * torch.stack(simplicity).sum()
        return terms

    def predict(self, inputs: Tensor) -> Prediction:
        """Classify; the routing is that of the class token in the last block with experts, 0 for slots not in use."""
        logits = self.classifier(self.encoder(inputs))
        gates = take_routings(self.encoder)[-1].gates
        return Prediction(logits=logits, routing=image_routing(self.encoder, gates, len(inputs)))

    def inspect(self, inputs: Tensor) -> Inspection:
        """Classify, and keep what the experts of the last block say of the class token; slots not in use are none."""
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
