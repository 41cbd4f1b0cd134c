"""How unevenly a router uses its experts: the two terms that balance GMoE.

    importance_e = sum over tokens of softmax(l)_e                          what the router asks for
    load_e       = sum over tokens of P(l_e + noise exceeds the threshold)  how often the expert would be chosen
    penalty      = CV^2 = var(amounts) / mean(amounts)^2                    variance with n - 1

The load is smooth although a choice is not: the threshold is the noisy logit of the last expert that was chosen, and
the probability is over a new draw of the one expert's noise. Legend: N tokens, E experts.
"""

import torch
from torch import Tensor

_TINY = 1e-10


def squared_variation(amounts: Tensor) -> Tensor:
    """Return the squared coefficient of variation, 0 for a single expert: [E] -> scalar."""
    mean = amounts.mean()
    variance = (amounts - mean).square().sum() / max(len(amounts) - 1, 1)
    return variance / (mean.square() + _TINY)


def importance_variation(logits: Tensor) -> Tensor:
    """Return how unevenly the router's probabilities are spread over the experts: logits [N, E] -> scalar."""
    return squared_variation(logits.float().softmax(-1).sum(0))


def load_variation(logits: Tensor, thresholds: Tensor, *, scale: float) -> Tensor:
    """Return how unevenly the choices are spread over the experts: a scalar.

    Shapes: logits [N, E] without noise, thresholds [N, 1], noisy logits of the last chosen; ``scale`` is the standard
    deviation of the noise.
    """
    chances = torch.special.ndtr((logits.float() - thresholds.float()) / scale)
    return squared_variation(chances.sum(0))
