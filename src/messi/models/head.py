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
    """[M, B, D] outputs of all experts, as they are mixed."""
    mixture: Tensor
    """[B, D] input of the classifier."""


class MessiHead(nn.Module):
    """Router, experts and classifier, for any encoder with features [B, width]."""

    def __init__(
        self,
        width: int,
        num_classes: int,
        num_experts: int = 6,
        *,
        expert_ratio: float = 4.0,
        expert_dropout: float = 0.0,
        normalised: bool = False,
        residual: bool = False,
        load_biased: bool = False,
    ) -> None:
        """Create a head; by default the paper's.

        Every expert has ``expert_ratio * width`` hidden units and, in training, dropout between its layers.
        ``normalised`` divides each expert's output by its root mean square. ``residual`` adds the features to the
        mixture, so that the experts refine a linear classifier instead of replacing it. ``load_biased`` adds a bias to
        the router's logits that no gradient trains; :meth:`move_load_bias` does.
        """
        super().__init__()
        self.router = nn.Linear(width, num_experts)
        self.experts = Experts.initialised(width, num_experts, ratio=expert_ratio, dropout=expert_dropout)
        self.classifier = nn.Linear(width, num_classes)
        self._normalised, self._residual = normalised, residual
        # A parameter, because averages of weights contain parameters only.
        self.load_bias = nn.Parameter(torch.zeros(num_experts), requires_grad=False) if load_biased else None

    def forward(self, features: Tensor) -> HeadOutput:
        """Compute logits, routing and all expert outputs for features [B, D]."""
        scores = self.router(features).float()
        if self.load_bias is not None:
            scores = scores + self.load_bias.detach()
        routing = scores.softmax(-1)
        experts = self.experts(features)
        if self._normalised:
            experts = unit_rms(experts)
        mixture = torch.einsum("bm,mbd->bd", routing.to(experts.dtype), experts)
        if self._residual:
            mixture = features + mixture
        return HeadOutput(logits=self.classifier(mixture), routing=routing, experts=experts, mixture=mixture)

    @torch.no_grad()
    def move_load_bias(self, load: Tensor, rate: float) -> None:
        """Raise the bias of every expert below the uniform load by ``rate`` and lower that of the others: load [M]."""
        if self.load_bias is not None:
            self.load_bias.add_((1 / len(load) - load).sign(), alpha=rate)


def unit_rms(outputs: Tensor) -> Tensor:
    """Divide every vector of outputs [*, D] by its root mean square, in the precision of the outputs."""
    mean_square = outputs.float().square().mean(-1, keepdim=True)
    # The constant only matters for outputs near zero, whose gradient it keeps finite.
    return outputs * (mean_square + 1e-6).rsqrt().to(outputs.dtype)
