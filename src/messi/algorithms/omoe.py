"""OMoE: GMoE with orthogonal expert outputs for every token (Feng et al., 2025, as compared in the MESSI paper).

L = L_cls + w sum over blocks of CV^2(importance)
"""

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor, nn

from messi.algorithms.gmoe import GMoE, importance_variation
from messi.core.batch import Task
from messi.core.config import Bounds, OneOf
from messi.core.errors import MessiError
from messi.models.encoder import EncoderConfig
from messi.models.moe_layers import CosineMoeLayer, MoeLayer, Routing


class OMoE(GMoE):
    """GMoE with two experts per token, whose outputs are made orthogonal by Gram-Schmidt."""

    @dataclass(frozen=True, kw_only=True)
    class Config(GMoE.Config):
        """GMoE's values, except for the number of experts per token."""

        top_k: Annotated[int, Bounds(minimum=2), OneOf((2, 3, 4))] = 2
        """Experts per token; num_experts gives a dense gate."""

    config: Config

    def __init__(self, config: Config, *, task: Task, encoder: EncoderConfig) -> None:
        if config.top_k > config.num_experts:
            raise MessiError(f"top_k must be at most num_experts = {config.num_experts}, but is {config.top_k}.")
        super().__init__(config, task=task, encoder=encoder)

    def _layer(self, mlp: nn.Module) -> MoeLayer:
        config = self.config
        return CosineMoeLayer(
            mlp,
            num_experts=config.num_experts,
            top_k=config.top_k,
            noise=config.gate_noise,
            dropout=config.expert_dropout,
            orthogonal=True,
        )

    def _imbalance(self, routing: Routing) -> Tensor:
        return importance_variation(routing.logits)
