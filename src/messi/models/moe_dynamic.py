"""DynMoE's layer: a token uses every expert that is close enough, and experts are added and removed in training.

    expert e is chosen where  sigmoid(cos(x, w_e)) > sigmoid(g_e)

After every training step, experts that no token chose are removed. If some tokens chose none, a free slot becomes an
expert in their direction. The number of slots is fixed and a mask marks those in use, so every step is the same
computation. Legend: E slots, N tokens, W width.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from messi.core import shares
from messi.models.experts import Experts
from messi.models.moe_layers import MoeLayer, Routing


class DynamicMoeLayer(MoeLayer):
    """Top-any routing over expert slots, some of which are in use."""

    active: Tensor
    """[E] which slots are in use."""
    used: Tensor
    """[E] number of tokens that chose the expert in the last training step."""
    strays: Tensor
    """Number of tokens of that step that chose no expert."""
    stray_sum: Tensor
    """[W] sum of these tokens."""

    def __init__(self, mlp: nn.Module, *, num_experts: int, max_experts: int, dropout: float = 0.0) -> None:
        super().__init__(Experts.copies(mlp, max_experts, dropout=dropout))
        width = self.experts.weight_in.shape[1]
        self.directions = nn.Parameter(nn.init.orthogonal_(torch.empty(max_experts, width)))
        self.thresholds = nn.Parameter(torch.zeros(max_experts))
        self.register_buffer("active", torch.arange(max_experts) < num_experts)
        self.register_buffer("used", torch.zeros(max_experts, dtype=torch.long))
        self.register_buffer("strays", torch.zeros((), dtype=torch.long))
        self.register_buffer("stray_sum", torch.zeros(width))

    def route(self, tokens: Tensor) -> Routing:
        """Choose experts for tokens [N, W]: any number in training, at least one in prediction.

        A choice is 0 or 1. A chosen expert receives the gradient of its margin, the others receive none.
        """
        cosines = functional.normalize(tokens, dim=-1) @ functional.normalize(self.directions, dim=-1).mT
        margins = (cosines.sigmoid() - self.thresholds.sigmoid()).relu() * self.active
        chosen = margins > 0
        if self.training:
            self._note(tokens, chosen)
            choices = chosen + (margins - margins.detach())
        else:
            choices = (chosen | (~chosen.any(-1, keepdim=True) & self._nearest(cosines))).to(cosines.dtype)
        # The limit is for tokens without an expert; a limit of 1 would stop the gradient of tokens with one.
        gates = choices / choices.sum(-1, keepdim=True).clamp_min(0.5)
        return Routing(gates=gates, logits=cosines, thresholds=self.thresholds)

    def _nearest(self, cosines: Tensor) -> Tensor:
        """Return the nearest expert in use as a mask: [N, E] -> [N, E]."""
        best = cosines.masked_fill(~self.active, -torch.inf).argmax(-1, keepdim=True)
        return best == torch.arange(cosines.shape[-1], device=cosines.device)

    @torch.no_grad()
    def _note(self, tokens: Tensor, chosen: Tensor) -> None:
        stray = ~chosen.any(-1)
        self.used.copy_(shares.total(lambda mine: mine.sum(0), chosen))
        self.strays.copy_(shares.total(torch.sum, stray))
        self.stray_sum.copy_(shares.total(torch.matmul, stray.to(tokens.dtype), tokens))

    @torch.no_grad()
    def adapt(self) -> None:
        """Remove experts that no token chose, and use the first free slot for the tokens that chose none.

        The new expert has the direction of those tokens and starts as the mean of the remaining experts.
        """
        kept = self.active & (self.used > 0)
        slots = torch.arange(len(kept), device=kept.device)
        first_free = slots.masked_fill(kept, len(kept)).amin()  # if none is free, no slot has this index
        born = (slots == first_free) & (self.strays > 0)
        self.experts.replace(born, torch.where(kept.any(), kept, self.active))
        direction = functional.normalize(self.stray_sum, dim=0)
        self.directions.copy_(torch.where(born[:, None], direction, self.directions))
        self.thresholds.mul_(~born)
        self.active.copy_(kept | born)
