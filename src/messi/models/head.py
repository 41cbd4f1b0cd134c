"""The expert head of MESSI: M expert MLPs on one feature vector, mixed by a softmax router, then a classifier.

Legend: M experts, B examples, D width, H = 4 D hidden units, C classes.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class HeadOutput:
    """What the head computes for a batch."""

    logits: Tensor
    """[B, C]"""
    routing: Tensor
    """[B, M] router probabilities, float32."""
    experts: Tensor
    """[M, B, D] the output of every expert."""


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
        return HeadOutput(logits=self.classifier(mixture), routing=routing, experts=experts)


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
        repeated = features.expand(len(self.weight_in), -1, -1)
        hidden = functional.gelu(torch.baddbmm(self.bias_in, repeated, self.weight_in))
        return torch.baddbmm(self.bias_out, hidden, self.weight_out)
