"""How steep a loss is in its inputs.

Legend: B examples, D width.
"""

import torch
from torch import Tensor


def gradient_penalty(losses: Tensor, inputs: Tensor) -> Tensor:
    """Return the mean over the examples of |d loss_b / d x_b|^2, to be differentiated itself.

    ``losses`` [B] come from ``inputs`` [B, D], each example's from its own row alone.
    """
    (gradients,) = torch.autograd.grad(losses.sum(), inputs, create_graph=True)
    return gradients.square().sum(1).mean()
