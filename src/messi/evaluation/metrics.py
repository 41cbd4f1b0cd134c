"""Numbers from predictions."""

import torch
from torch import Tensor
from torch.nn import functional


def accuracy(logits: Tensor, labels: Tensor) -> float:
    """Return the share of right answers: logits [N, C], labels [N]."""
    return float((logits.argmax(-1) == labels).double().mean())


def cross_entropy(logits: Tensor, labels: Tensor) -> float:
    """Return the mean negative log-likelihood: logits [N, C], labels [N]."""
    return float(functional.cross_entropy(logits.double(), labels))


def class_counts(logits: Tensor, labels: Tensor) -> Tensor:
    """Return how often each class was rightly said, is a label, and was said: logits [N, C], labels [N] -> [3, C].

    Those of several parts of the data, added up, are those of the whole.
    """
    answers, classes = logits.argmax(-1), logits.shape[-1]
    return torch.stack([torch.bincount(n, minlength=classes) for n in (labels[answers == labels], labels, answers)])


def macro_f1(counts: Tensor) -> float:
    """Return the mean F1 over the classes that occur in the labels, as WILDS has it, from their counts [3, C].

    An answer that is no such class is a miss of the right one and counts against nothing else.
    """
    right, actual, said = counts.double()
    occurring = actual > 0
    return float((2 * right[occurring] / (actual + said)[occurring]).mean())
