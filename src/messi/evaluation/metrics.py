"""Numbers from predictions."""

from torch import Tensor
from torch.nn import functional


def accuracy(logits: Tensor, labels: Tensor) -> float:
    """Return the share of right answers: logits [N, C], labels [N]."""
    return float((logits.argmax(-1) == labels).double().mean())


def cross_entropy(logits: Tensor, labels: Tensor) -> float:
    """Return the mean negative log-likelihood: logits [N, C], labels [N]."""
    return float(functional.cross_entropy(logits.double(), labels))
