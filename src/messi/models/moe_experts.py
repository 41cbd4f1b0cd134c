"""The MLP of a transformer block, several times: the experts of GMoE and its kin.

Every expert is computed for every token and the gate decides what counts. That is E times the work of the MLP, in two
blocks of twelve, but one batched matrix product of a fixed shape: nothing waits for the device, nothing is dropped, and
a token's answer does not depend on the others. Legend: E experts, N tokens, W width, H hidden units.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from messi.models.head import LowPrecisionExperts


class FfnExperts(nn.Module):
    """Copies of an MLP that go their own ways in training."""

    def __init__(self, mlp: Any, num_experts: int, *, dropout: float = 0.0) -> None:
        super().__init__()

        def copies(weight: Tensor) -> nn.Parameter:
            return nn.Parameter(weight.detach().repeat(num_experts, 1, 1))

        self.weight_in, self.bias_in = copies(mlp.fc1.weight.mT), copies(mlp.fc1.bias[None])
        self.weight_out, self.bias_out = copies(mlp.fc2.weight.mT), copies(mlp.fc2.bias[None])
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor) -> Tensor:
        """Apply every expert to every token: [N, W] -> [E, N, W]."""
        parameters = (self.weight_in, self.bias_in, self.weight_out, self.bias_out)
        dropping = self.training and self.dropout.p > 0
        if tokens.is_cuda and torch.is_autocast_enabled("cuda") and not dropping:
            result: Tensor = LowPrecisionExperts.apply(tokens, *parameters, torch.get_autocast_dtype("cuda"))
            return result
        repeated = tokens.expand(len(self.weight_in), -1, -1)
        hidden = self.dropout(functional.gelu(torch.baddbmm(self.bias_in, repeated, self.weight_in)))
        return torch.baddbmm(self.bias_out, hidden, self.weight_out)

    @torch.no_grad()
    def replace(self, slots: Tensor, parents: Tensor) -> None:
        """Let the experts in ``slots`` be the mean of the ``parents``, in place; masks [E]."""
        shares = parents / parents.sum()
        for parameter in self.parameters():
            mean = torch.tensordot(shares.to(parameter.dtype), parameter, dims=1)
            parameter.copy_(torch.where(slots[:, None, None], mean, parameter))


def is_plain(mlp: Any) -> bool:
    """Return whether this is what the experts compute: two linear layers with biases, GELU between them."""
    layers = getattr(mlp, "fc1", None), getattr(mlp, "fc2", None)
    return (
        all(isinstance(layer, nn.Linear) and layer.bias is not None for layer in layers)
        and type(getattr(mlp, "act", None)) is nn.GELU
        and mlp.act.approximate == "none"
        and isinstance(getattr(mlp, "norm", None), nn.Identity)
    )
