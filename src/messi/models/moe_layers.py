"""Mixtures of experts that replace the MLP of a transformer block: GMoE's, and OMoE's with orthogonal outputs.

Legend: B images, T tokens, N = B T, E experts, W width.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from messi.core import shares
from messi.models.experts import Experts
from messi.models.moe_orthogonal import chosen_slots, orthogonal_gates, orthogonal_slot_gates

if TYPE_CHECKING:  # only CUDA builds have Triton
    from messi.models.fused.moe_kernels import ChosenExperts

_ROUTER_WIDTH = 256


@dataclass(frozen=True)
class Routing:
    """The routing of N tokens, in float32."""

    gates: Tensor
    """[N, E] weights of the expert outputs, zero for experts that were not chosen."""
    logits: Tensor
    """[N, E] score of every expert, without noise."""
    thresholds: Tensor
    """Score needed to be chosen: [N, 1] per token, or [E] per expert."""

    def gathered(self, share: shares.Share) -> "Routing":
        """Return the routing of all tokens from the routings of all shares, in one message."""
        by_token = self.thresholds.dim() == 2
        parts = [self.gates, self.logits, *([self.thresholds] if by_token else [])]
        gates, logits, *thresholds = share.gather(torch.cat(parts, 1)).split([part.shape[1] for part in parts], 1)
        return Routing(gates, logits, thresholds[0] if by_token else self.thresholds)


class MoeLayer(nn.Module, ABC):
    """Experts and a router; the routing of the last pass is kept until it is taken."""

    def __init__(self, experts: Experts) -> None:
        super().__init__()
        self.experts = experts
        self._routing: Routing | None = None
        self._share: shares.Share | None = None

    @property
    def most_chosen(self) -> int:
        """The largest possible number of experts of a token."""
        return len(self.experts.weight_in)

    @abstractmethod
    def route(self, tokens: Tensor) -> Routing:
        """Choose experts for tokens [N, W]."""

    def mix(self, gates: Tensor, outputs: Tensor) -> Tensor:
        """Combine the outputs [E, N, W] with the gates [N, E]: [N, W]."""
        return torch.einsum("ne,enw->nw", gates, outputs)

    def mix_chosen(self, gates: Tensor, chosen: Tensor, outputs: "ChosenExperts") -> Tensor:  # noqa: ARG002 (OMoE's)
        """Combine the outputs of the chosen experts, [N, E], like :meth:`mix`."""
        return outputs.mixed(gates)

    def forward(self, x: Tensor) -> Tensor:
        """Replace the MLP: [B, T, W] -> [B, T, W]; router and mixture are float32 even under autocast."""
        tokens = x.flatten(0, -2)
        sparse = self.experts.run_kernels(tokens)
        outputs = None if sparse else self.experts(tokens)
        with torch.autocast(x.device.type, enabled=False):
            self._routing, self._share = self.route(tokens.float()), shares.inside()
            gates = self._routing.gates
            if outputs is not None:
                return self.mix(gates, outputs.float()).view(x.shape)
        chosen = gates.detach() > 0
        mixture = self.mix_chosen(gates, chosen, self.experts.of_choices(tokens, chosen, self.most_chosen))
        return mixture.view(x.shape)

    def take(self) -> Routing:
        """Return the routing of the last pass and release it, because it keeps the graph of the pass alive.

        If several processes divided the pass, this is the routing of all tokens.
        """
        routing, self._routing = self._routing, None
        if routing is None:
            raise RuntimeError("There was no forward pass since the routing was last taken.")
        return routing if self._share is None else routing.gathered(self._share)

    def release(self) -> None:
        """Forget the routing of the last pass."""
        self._routing = None


class CosineRouter(nn.Module):
    """Compares a projection of the token with a vector per expert, and chooses the top k."""

    def __init__(self, width: int, num_experts: int, *, top_k: int, noise: float) -> None:
        super().__init__()
        self.projection = nn.Linear(width, _ROUTER_WIDTH)
        self.vectors = nn.Parameter(torch.empty(_ROUTER_WIDTH, num_experts))
        nn.init.normal_(self.vectors, std=0.01)
        self.log_scale = nn.Parameter(torch.full((), math.log(2)))
        self._top_k, self._noise = top_k, noise / num_experts

    def forward(self, tokens: Tensor) -> Routing:
        """Choose experts for tokens [N, W]; with noise on the logits in training."""
        scale = self.log_scale.clamp(max=math.log(100)).exp()
        directions = functional.normalize(self.vectors, dim=0)
        logits = functional.normalize(self.projection(tokens), dim=-1) @ directions * scale
        noisy = logits + self._noise * self._draw(logits) if self.training and self._noise else logits
        numbers = torch.arange(noisy.shape[-1], device=noisy.device)
        chosen = (noisy.detach().topk(self._top_k, dim=-1).indices[..., None] == numbers).any(-2)
        gates = noisy.softmax(-1) * chosen
        if self._top_k > 1:
            gates = gates / gates.sum(-1, keepdim=True)
        thresholds = noisy.masked_fill(~chosen, torch.inf).amin(-1, keepdim=True)
        return Routing(gates=gates, logits=logits, thresholds=thresholds)

    @staticmethod
    def _draw(logits: Tensor) -> Tensor:
        return shares.draw(len(logits), lambda rows: torch.randn_like(logits.new_empty(rows, logits.shape[1])))


class CosineMoeLayer(MoeLayer):
    """GMoE's layer: a cosine router and copies of the MLP.

    With one expert per token, its gate is the router's probability, which gives the router a gradient. With more, the
    gates sum to 1.
    """

    def __init__(
        self,
        mlp: nn.Module,
        *,
        num_experts: int,
        top_k: int = 1,
        noise: float = 1.0,
        dropout: float = 0.0,
        orthogonal: bool = False,
    ) -> None:
        super().__init__(Experts.copies(mlp, num_experts, dropout=dropout))
        self.router = CosineRouter(self.experts.weight_in.shape[1], num_experts, top_k=top_k, noise=noise)
        self._orthogonal, self._top_k = orthogonal, top_k

    @property
    def most_chosen(self) -> int:
        """The number of experts of a token."""
        return self._top_k

    def route(self, tokens: Tensor) -> Routing:
        """Choose experts for tokens [N, W]."""
        routing: Routing = self.router(tokens)
        return routing

    def mix(self, gates: Tensor, outputs: Tensor) -> Tensor:
        """Combine the outputs [E, N, W] with the gates [N, E], after Gram-Schmidt if configured: [N, W]."""
        return super().mix(orthogonal_gates(gates, outputs) if self._orthogonal else gates, outputs)

    def mix_chosen(self, gates: Tensor, chosen: Tensor, outputs: "ChosenExperts") -> Tensor:
        """Combine the outputs of the chosen experts, [N, E], like :meth:`mix`."""
        if self._orthogonal:
            slots = chosen_slots(chosen, self._top_k)
            gates = orthogonal_slot_gates(gates, slots, outputs.products(slots))
        return outputs.mixed(gates)
