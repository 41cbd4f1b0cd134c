"""OMoE: GMoE whose experts' outputs are made orthogonal for every token (Feng et al., 2025, as MESSI compares it).

L = L_cls + w sum over blocks of CV^2(importance)
"""

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor, nn

from messi.algorithms.gmoe import GMoE
from messi.core.batch import Task
from messi.core.config import Bounds, OneOf
from messi.core.errors import MessiError
from messi.losses.expert_balance import importance_variation
from messi.models.encoder import EncoderConfig
from messi.models.moe_layers import CosineMoeLayer, MoeLayer, Routing


class OMoE(GMoE):
    """GMoE with two experts for every token, whose outputs Gram-Schmidt makes orthogonal."""

    @dataclass(frozen=True, kw_only=True)
    class Config(GMoE.Config):
        """GMoE's values, but for the number of experts that a token goes to."""

        top_k: Annotated[int, Bounds(minimum=2), OneOf((2, 3, 4))] = 2
        """Experts that a token goes to; all of them make the gate dense."""

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

    def _unevenness(self, routing: Routing) -> Tensor:
        return importance_variation(routing.logits)
