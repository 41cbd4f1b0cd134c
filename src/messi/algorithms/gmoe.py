"""GMoE: a vision transformer whose last blocks choose among copies of their MLP (Li et al., 2023).

    L = L_cls + w sum over blocks of (CV^2(importance) + CV^2(load)) / 2
    importance_e = sum over tokens of softmax(l)_e                          what the router asks for
    load_e       = sum over tokens of P(l_e + noise exceeds the threshold)  how often the expert would be chosen
    CV^2(a)      = var(a) / mean(a)^2                                       variance with n - 1

The load is a smooth estimate of the number of choices: the threshold is the noisy logit of the last chosen expert, and
the probability is over a new draw of the noise of that one expert. Legend: N tokens, E experts.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn

from messi.algorithms.common.base import AlgorithmConfig
from messi.algorithms.common.experts_in_blocks import ExpertsInBlocks
from messi.core.batch import Batch, Inspection, LossTerms, Prediction, Task
from messi.core.config import Bounds, LogUniform, OneOf
from messi.losses.by_domain import domain_mean_cross_entropy
from messi.models.encoder import EncoderConfig
from messi.models.moe_layers import CosineMoeLayer, MoeLayer, Routing
from messi.models.moe_vit import image_routing, inspect_blocks, place_experts, take_routings

Rate = Annotated[float, Bounds(minimum=0, maximum=0.9)]
_TINY = 1e-10


class GMoE(ExpertsInBlocks):
    """A vision transformer in which two blocks route each token to one of six copies of their MLP."""

    @dataclass(frozen=True, kw_only=True)
    class Config(AlgorithmConfig):
        """The published values, but without dropout and stochastic depth, which the other methods here do not use."""

        num_experts: Annotated[int, Bounds(minimum=2), OneOf((4, 6, 8))] = 6
        """Experts per block."""
        moe_blocks: tuple[int, ...] = ()
        """Indices of the blocks with experts, from 0; by default every second one of the last third: 8 and 10 of 12."""
        balance_weight: Annotated[float, Bounds(minimum=0), LogUniform(-3, -1)] = 0.01
        """Weight of the balance terms, summed over the blocks."""
        gate_noise: Annotated[float, Bounds(minimum=0)] = 1.0
        """Standard deviation of the noise on the router logits in training, multiplied by the number of experts."""
        expert_dropout: Rate = 0.0
        """Dropout between the layers of an expert; the published value is 0.1."""
        drop_path: Rate = 0.0
        """Stochastic depth of the last block, decreasing linearly to 0 for the first; the published value is 0.1."""

    def __init__(self, config: Config, *, task: Task, encoder: EncoderConfig) -> None:
        super().__init__()
        self.config, self.task = config, task
        self.encoder = encoder.build(task.input_shape)
        place_experts(
            self.encoder, self._layer, method=config.name, blocks=config.moe_blocks, drop_path=config.drop_path
        )
        self.classifier = nn.Linear(self.encoder.width, task.num_classes)

    def loss(self, batch: Batch) -> LossTerms:
        """Return the classification term and the balance term."""
        logits = self.classifier(self.encoder(batch.inputs))
        terms = {"cls": domain_mean_cross_entropy(logits, batch.labels, batch.domains)}
        routings, weight = take_routings(self.encoder), self.config.balance_weight
        if weight:
            terms["bal"] = weight * torch.stack([self._imbalance(routing) for routing in routings]).sum()
        return terms

    def predict(self, inputs: Tensor) -> Prediction:
        """Return the logits and the routing of the class token in the last block with experts."""
        logits = self.classifier(self.encoder(inputs))
        gates = take_routings(self.encoder)[-1].gates
        return Prediction(logits=logits, routing=image_routing(self.encoder, gates, inputs.shape[0]))

    def inspect(self, inputs: Tensor) -> Inspection:
        """Return logits, features and the last block's expert outputs for the class token."""
        return inspect_blocks(self.encoder, self.classifier, inputs)

    def _layer(self, mlp: nn.Module) -> MoeLayer:
        config = self.config
        return CosineMoeLayer(
            mlp, num_experts=config.num_experts, noise=config.gate_noise, dropout=config.expert_dropout
        )

    def _imbalance(self, routing: Routing) -> Tensor:
        importance = importance_variation(routing.logits)
        scale = self.config.gate_noise / self.config.num_experts
        if not scale:
            return importance  # without noise the load has no gradient
        return (importance + load_variation(routing.logits, routing.thresholds, scale=scale)) / 2


def squared_variation(amounts: Tensor) -> Tensor:
    """Return the squared coefficient of variation, 0 for a single expert: [E] -> scalar."""
    mean = amounts.mean()
    variance = (amounts - mean).square().sum() / max(len(amounts) - 1, 1)
    return variance / (mean.square() + _TINY)


def importance_variation(logits: Tensor) -> Tensor:
    """Return how unevenly the router's probabilities are distributed over the experts: logits [N, E] -> scalar."""
    return squared_variation(logits.float().softmax(-1).sum(0))


def load_variation(logits: Tensor, thresholds: Tensor, *, scale: float) -> Tensor:
    """Return how unevenly the choices are distributed over the experts, a scalar.

    Args:
        logits: [N, E] router logits without noise.
        thresholds: [N, 1] noisy logit of the last chosen expert.
        scale: standard deviation of the noise.

    """
    chances = torch.special.ndtr((logits.float() - thresholds.float()) / scale)
    return squared_variation(chances.sum(0))
