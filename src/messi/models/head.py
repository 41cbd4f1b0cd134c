"""The expert head of MESSI: M expert MLPs on one feature vector, mixed by a softmax router, then a classifier.

Legend: M experts, B examples, D width, C classes.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from messi.models.experts import Experts


@dataclass(frozen=True)
class HeadOutput:
    """The results of the head for a batch."""

    logits: Tensor
    """[B, C]"""
    routing: Tensor
    """[B, M] router probabilities, float32."""
    experts: Tensor
    """[M, B, D] outputs of all experts."""
    mixture: Tensor
    """[B, D] input of the classifier."""


class MessiHead(nn.Module):
    """Router, experts and classifier, for any encoder with features [B, width]."""

    def __init__(self, width: int, num_classes: int, num_experts: int = 6) -> None:
        super().__init__()
        self.router = nn.Linear(width, num_experts)
        self.experts = Experts.initialised(width, num_experts)
        self.classifier = nn.Linear(width, num_classes)

    def forward(self, features: Tensor) -> HeadOutput:
        """Compute logits, routing and all expert outputs for features [B, D]."""
        routing = self.router(features).float().softmax(-1)
        experts = self.experts(features)
        mixture = torch.einsum("bm,mbd->bd", routing.to(experts.dtype), experts)
        return HeadOutput(logits=self.classifier(mixture), routing=routing, experts=experts, mixture=mixture)
