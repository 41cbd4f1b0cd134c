"""How the gradients of single examples vary in every domain, which Fishr makes alike.

The cross-entropy of one example has the gradient  (p - y) z^T  by the weight of a linear classifier and  p - y  by its
bias, with the softmax p, the one-hot label y and the features z. So the variance over a domain's examples is

    v_k = mean (p - y)^2 (z^2)^T  -  (mean (p - y) z^T)^2        squares entry by entry, z with a 1 for the bias

two matrix products for each domain; the B gradients themselves are never built.
Legend: B examples, C classes, D features, K domains.
"""

import torch
from torch import Tensor
from torch.nn import functional

from messi.losses.by_domain import mean_of_present


def gradient_variances(features: Tensor, logits: Tensor, labels: Tensor, members: Tensor) -> Tensor:
    """Return the variance of the classifier's gradients in every domain, 0 where it has no member: [K, C, D + 1].

    Shapes: features [B, D], logits [B, C], labels [B], members bool [K, B]. In float32 at least: a variance is a small
    difference of large numbers.
    """
    with torch.autocast(features.device.type, enabled=False):
        features, logits = (x if x.dtype == torch.float64 else x.float() for x in (features, logits))
        classes = torch.arange(logits.shape[1], device=labels.device)
        residuals = logits.softmax(-1) - (labels[:, None] == classes).to(logits.dtype)
        inputs = functional.pad(features, (0, 1), value=1.0)
        shares = (members / members.sum(1, keepdim=True).clamp_min(1)).to(logits.dtype)[..., None]
        mean = (shares * residuals).mT @ inputs
        return (shares * residuals.square()).mT @ inputs.square() - mean.square()


def variance_distance(variances: Tensor, present: Tensor) -> Tensor:
    """Return the mean over the present domains of mean((v_k - mean v)^2): variances [K, ...], present [K] -> scalar."""
    flat = variances.flatten(1)
    mean = (flat * present[:, None]).sum(0) / present.sum()
    return mean_of_present((flat - mean).square().mean(1), present)
