"""DynMoE's layer: a token goes to every expert that is near enough, and the number of experts follows the tokens.

    expert e is chosen where  sigmoid(cos(x, w_e)) > sigmoid(g_e)

After every training step experts that no token chose are put out of use, and where some tokens chose none, a free slot
becomes an expert in their direction. Slots are fixed and a mask says which are in use, so that a step is the same
computation every time. Legend: E slots, N tokens, W width.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from messi.models.experts import Experts
from messi.models.moe_layers import MoeLayer, Routing


class DynamicMoeLayer(MoeLayer):
    """Top-any routing over slots for experts, some of them in use."""

    active: Tensor
    """[E] which slots are in use."""
    used: Tensor
    """[E] how many tokens of the last training step chose the expert."""
    strays: Tensor
    """How many tokens of that step chose none."""
    stray_sum: Tensor
    """[W] the sum of these tokens."""

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

        A choice is 0 or 1; its gradient is that of the margin by which it was made, and there is none for the others.
        """
        cosines = functional.normalize(tokens, dim=-1) @ functional.normalize(self.directions, dim=-1).mT
        margins = (cosines.sigmoid() - self.thresholds.sigmoid()).relu() * self.active
        chosen = margins > 0
        if self.training:
            self._note(tokens, chosen)
            choices = chosen + (margins - margins.detach())
        else:
            choices = (chosen | (~chosen.any(-1, keepdim=True) & self._nearest(cosines))).to(cosines.dtype)
        # The limit is for tokens without an expert; at 1 it would cut off the gradient of those with one.
        gates = choices / choices.sum(-1, keepdim=True).clamp_min(0.5)
        return Routing(gates=gates, logits=cosines, thresholds=self.thresholds)

    def _nearest(self, cosines: Tensor) -> Tensor:
        """Return the nearest expert in use as a mask: [N, E] -> [N, E]."""
        best = cosines.masked_fill(~self.active, -torch.inf).argmax(-1, keepdim=True)
        return best == torch.arange(cosines.shape[-1], device=cosines.device)

    @torch.no_grad()
    def _note(self, tokens: Tensor, chosen: Tensor) -> None:
        stray = ~chosen.any(-1)
        self.used.copy_(chosen.sum(0))
        self.strays.copy_(stray.sum())
        self.stray_sum.copy_(stray.to(tokens.dtype) @ tokens)

    @torch.no_grad()
    def adapt(self) -> None:
        """Put experts that nobody chose out of use, and take the first free slot into use for tokens without any.

        The new expert looks where those tokens lie and starts as the mean of the experts that stay.
        """
        kept = self.active & (self.used > 0)
        slots = torch.arange(len(kept), device=kept.device)
        first_free = slots.masked_fill(kept, len(kept)).amin()  # no slot has that number when none is free
        born = (slots == first_free) & (self.strays > 0)
        self.experts.replace(born, torch.where(kept.any(), kept, self.active))
        direction = functional.normalize(self.stray_sum, dim=0)
        self.directions.copy_(torch.where(born[:, None], direction, self.directions))
        self.thresholds.mul_(~born)
        self.active.copy_(kept | born)
