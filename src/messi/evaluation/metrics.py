"""Metrics of predictions."""

import torch
from torch import Tensor
from torch.nn import functional

from messi.core.records import ClassScores


def accuracy(logits: Tensor, labels: Tensor) -> float:
    """Return the fraction of correct predictions: logits [N, C], labels [N]."""
    return float((logits.argmax(-1) == labels).double().mean())


def cross_entropy(logits: Tensor, labels: Tensor) -> float:
    """Return the mean negative log-likelihood: logits [N, C], labels [N]."""
    return float(functional.cross_entropy(logits.double(), labels))


def class_counts(logits: Tensor, labels: Tensor) -> Tensor:
    """Count true positives, labels and predictions of each class: logits [N, C], labels [N] -> [3, C].

    The counts of several parts of the data add up to those of the whole.
    """
    answers, classes = logits.argmax(-1), logits.shape[-1]
    return torch.stack([torch.bincount(n, minlength=classes) for n in (labels[answers == labels], labels, answers)])


def macro_f1(counts: Tensor) -> float:
    """Return the mean F1 over the classes that occur in the labels, as WILDS does, from their counts [3, C].

    Predicting a class that does not occur only lowers the recall of the true class.
    """
    right, actual, predicted = counts.double()
    occurring = actual > 0
    return float((2 * right[occurring] / (actual + predicted)[occurring]).mean())


def balanced_accuracy(counts: Tensor) -> float:
    """Return the mean recall over the classes that occur in the labels, from their counts [3, C]."""
    right, actual, _ = counts.double()
    occurring = actual > 0
    return float((right[occurring] / actual[occurring]).mean())


def majority_share(counts: Tensor) -> float:
    """Return the share of the most frequent class, from the counts [3, C]: the accuracy of always predicting it."""
    return int(counts[1].max()) / int(counts[1].sum())


def class_scores(counts: Tensor) -> ClassScores:
    """Return what accuracy hides if classes are unbalanced, from the counts [3, C]."""
    return ClassScores(
        balanced_accuracy=balanced_accuracy(counts), macro_f1=macro_f1(counts), majority_share=majority_share(counts)
    )
