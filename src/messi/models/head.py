"""The expert head of MESSI: M expert MLPs on one feature vector, mixed by a softmax router, then a classifier.

Legend: M experts, B examples, D width, H = 4 D hidden units, C classes.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from messi.models.precision import low_copies, weight_grad


@dataclass(frozen=True)
class HeadOutput:
    """What the head computes for a batch."""

    logits: Tensor
    """[B, C]"""
    routing: Tensor
    """[B, M] router probabilities, float32."""
    experts: Tensor
    """[M, B, D] the output of every expert."""
    mixture: Tensor
    """[B, D] what the classifier reads."""


class MessiHead(nn.Module):
    """Router, experts and classifier; goes on any encoder with features [B, width]."""

    def __init__(self, width: int, num_classes: int, num_experts: int = 6) -> None:
        super().__init__()
        self.router = nn.Linear(width, num_experts)
        self.experts = Experts(width, num_experts)
        self.classifier = nn.Linear(width, num_classes)

    def forward(self, features: Tensor) -> HeadOutput:
        """Compute logits, routing and every expert's output for features [B, D]."""
        routing = self.router(features).float().softmax(-1)
        experts = self.experts(features)
        mixture = torch.einsum("bm,mbd->bd", routing.to(experts.dtype), experts)
        return HeadOutput(logits=self.classifier(mixture), routing=routing, experts=experts, mixture=mixture)


class Experts(nn.Module):
    """M two-layer MLPs with GELU, computed together as batched matrix products."""

    def __init__(self, width: int, num_experts: int) -> None:
        super().__init__()
        hidden = 4 * width
        self.weight_in = nn.Parameter(torch.empty(num_experts, width, hidden))
        self.bias_in = nn.Parameter(torch.empty(num_experts, 1, hidden))
        self.weight_out = nn.Parameter(torch.empty(num_experts, hidden, width))
        self.bias_out = nn.Parameter(torch.empty(num_experts, 1, width))
        # The bounds of nn.Linear, which cannot be asked to initialise a stack of layers.
        for parameter, fan_in in (
            (self.weight_in, width),
            (self.bias_in, width),
            (self.weight_out, hidden),
            (self.bias_out, hidden),
        ):
            nn.init.uniform_(parameter, -1 / math.sqrt(fan_in), 1 / math.sqrt(fan_in))

    def forward(self, features: Tensor) -> Tensor:
        """Apply every expert to every feature vector: [B, D] -> [M, B, D]."""
        parameters = (self.weight_in, self.bias_in, self.weight_out, self.bias_out)
        if features.is_cuda and torch.is_autocast_enabled("cuda"):
            result: Tensor = LowPrecisionExperts.apply(features, *parameters, torch.get_autocast_dtype("cuda"))
            return result
        repeated = features.expand(len(self.weight_in), -1, -1)
        hidden = functional.gelu(torch.baddbmm(self.bias_in, repeated, self.weight_in))
        return torch.baddbmm(self.bias_out, hidden, self.weight_out)


class LowPrecisionExperts(torch.autograd.Function):
    """The same in a lower precision, with float32 gradients of the parameters.

    Autocast would copy each parameter by itself, and its gradient from the lower precision.
    """

    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight_in: Tensor,
        bias_in: Tensor,
        weight_out: Tensor,
        bias_out: Tensor,
        dtype: torch.dtype,
    ) -> Tensor:
        """Return [M, B, D] in ``dtype``."""
        low = low_copies([weight_in, bias_in, weight_out, bias_out], dtype)
        x = features.to(dtype).expand(len(weight_in), -1, -1)
        hidden = torch.baddbmm(low[1], x, low[0])
        active = functional.gelu(hidden)
        ctx.save_for_backward(x, hidden, active, low[0], low[2])
        ctx.dtype = features.dtype
        return torch.baddbmm(low[3], active, low[2])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of features and parameters."""
        x, hidden, active, weight_in, weight_out = ctx.saved_tensors
        hidden_grad = torch.ops.aten.gelu_backward(grad @ weight_out.mT, hidden)
        return (
            (hidden_grad @ weight_in.mT).sum(0, dtype=torch.float32).to(ctx.dtype),
            weight_grad(x, hidden_grad),
            hidden_grad.sum(1, keepdim=True, dtype=torch.float32),
            weight_grad(active, grad),
            grad.sum(1, keepdim=True, dtype=torch.float32),
            None,
        )
