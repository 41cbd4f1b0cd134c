"""Experts: two-layer MLPs of one shape, computed together for all inputs.

Every expert is computed for every input, and the router weights the outputs: one batched matrix product of a fixed
shape. Nothing waits for the device, no token is dropped, and the output for one input does not depend on the others.
In a transformer block this is M times the work of the MLP; kernels compute only the experts that a token chose.
Legend: M experts, N inputs (images or tokens), W width, H hidden units.
"""

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from messi.core import gpu_kernels
from messi.models.dropout import dropped
from messi.models.fused.experts import LowPrecisionExperts

if TYPE_CHECKING:  # only CUDA builds have Triton
    from messi.models.fused.moe_kernels import ChosenExperts


class Experts(nn.Module):
    """M two-layer MLPs with GELU as batched matrix products."""

    def __init__(
        self, weight_in: Tensor, bias_in: Tensor, weight_out: Tensor, bias_out: Tensor, *, dropout: float = 0.0
    ) -> None:
        """Create experts from weights [M, W, H], [M, 1, H], [M, H, W], [M, 1, W]; dropout is between the two layers."""
        super().__init__()
        self.weight_in, self.bias_in = nn.Parameter(weight_in), nn.Parameter(bias_in)
        self.weight_out, self.bias_out = nn.Parameter(weight_out), nn.Parameter(bias_out)
        self._dropout = dropout

    @classmethod
    def initialised(cls, width: int, num_experts: int, *, ratio: float = 4.0, dropout: float = 0.0) -> "Experts":
        """Return experts with ratio * W hidden units, initialised independently and each like two ``nn.Linear``."""
        hidden = max(round(ratio * width), 1)
        shapes = ((width, hidden), (1, hidden), (hidden, width), (1, width))
        weights = [nn.Parameter(torch.empty(num_experts, *shape)) for shape in shapes]
        for weight, fan_in in zip(weights, (width, width, hidden, hidden), strict=True):
            nn.init.uniform_(weight, -1 / math.sqrt(fan_in), 1 / math.sqrt(fan_in))
        return cls(*weights, dropout=dropout)

    @classmethod
    def copies(cls, mlp: Any, num_experts: int, *, dropout: float = 0.0) -> "Experts":
        """Return experts that all start as the MLP of a transformer block; it must be plain (:func:`is_plain`)."""
        originals = (mlp.fc1.weight.mT, mlp.fc1.bias[None], mlp.fc2.weight.mT, mlp.fc2.bias[None])
        return cls(*(weight.detach().repeat(num_experts, 1, 1) for weight in originals), dropout=dropout)

    def forward(self, inputs: Tensor) -> Tensor:
        """Apply every expert to every input: [N, W] -> [M, N, W]."""
        if self.run_kernels(inputs):
            result: Tensor = LowPrecisionExperts.apply(inputs, *self._weights(), torch.get_autocast_dtype("cuda"))
            return result
        dropping = self.training and self._dropout > 0
        repeated = inputs.expand(len(self.weight_in), -1, -1)
        hidden = functional.gelu(torch.baddbmm(self.bias_in, repeated, self.weight_in))
        hidden = dropped(hidden, self._dropout, dim=1) if dropping else hidden
        return torch.baddbmm(self.bias_out, hidden, self.weight_out)

    def of_choices(self, inputs: Tensor, chosen: Tensor, most: int) -> "ChosenExperts":
        """Apply experts to inputs [N, W] where ``chosen`` [N, M]; no input has more than ``most`` of them."""
        from messi.models.fused.moe_kernels import ChosenExperts  # noqa: PLC0415 (only CUDA builds have Triton)

        return ChosenExperts(inputs, chosen, most, self._weights(), torch.get_autocast_dtype("cuda"))

    def run_kernels(self, inputs: Tensor) -> bool:
        """Return whether kernels process these inputs; they have no dropout."""
        return gpu_kernels.run_under_autocast(inputs) and not (self.training and self._dropout > 0)

    def _weights(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.weight_in, self.bias_in, self.weight_out, self.bias_out

    @torch.no_grad()
    def replace(self, slots: Tensor, parents: Tensor) -> None:
        """Set the experts in ``slots`` to the mean of the ``parents``, in place; both are masks [M]."""
        shares = parents / parents.sum()
        for parameter in self.parameters():
            mean = torch.tensordot(shares.to(parameter.dtype), parameter, dims=1)
            parameter.copy_(torch.where(slots[:, None, None], mean, parameter))


def is_plain(mlp: Any) -> bool:
    """Return whether an MLP computes what an expert does: two linear layers with biases and GELU between them."""
    layers = getattr(mlp, "fc1", None), getattr(mlp, "fc2", None)
    return (
        all(isinstance(layer, nn.Linear) and layer.bias is not None for layer in layers)
        and type(getattr(mlp, "act", None)) is nn.GELU
        and mlp.act.approximate == "none"
        and isinstance(getattr(mlp, "norm", None), nn.Identity)
    )
