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


def macro_f1(logits: Tensor, labels: Tensor) -> float:
    """Return the mean F1 over the classes that occur in the labels, as WILDS has it: logits [N, C], labels [N].

    An answer that is no such class is a miss of the right one and counts against nothing else.
    """
    answers, classes = logits.argmax(-1), logits.shape[-1]
    right = torch.bincount(labels[answers == labels], minlength=classes).double()
    actual, said = (torch.bincount(names, minlength=classes).double() for names in (labels, answers))
    occurring = actual > 0
    return float((2 * right[occurring] / (actual + said)[occurring]).mean())
