"""Metrics of predictions."""

import torch
from torch.nn import functional

from messi.evaluation.metrics import class_counts, macro_f1


def answers(*said: int, classes: int = 4) -> torch.Tensor:
    return functional.one_hot(torch.tensor(said), classes).float()


def test_macro_f1_by_hand() -> None:
    # Class 0: one of two found, one false positive: F1 = 1/2. Class 1: both found: 2*2/(2+3). Class 2: missed: 0.
    labels = torch.tensor([0, 0, 1, 1, 2])
    counts = class_counts(answers(0, 1, 1, 1, 0), labels)
    assert counts.tolist() == [[1, 2, 0, 0], [2, 2, 1, 0], [2, 3, 0, 0]]
    assert macro_f1(counts) == (1 / 2 + 4 / 5 + 0) / 3


def test_macro_f1_is_the_mean_over_the_classes_that_occur() -> None:
    """Class 3 is predicted once but never occurs: it lowers the recall of class 0 and has no F1 itself."""
    labels = torch.tensor([0, 0, 1])
    assert macro_f1(class_counts(answers(0, 3, 1), labels)) == (2 / 3 + 1) / 2


def test_macro_f1_of_correct_and_of_wrong_predictions() -> None:
    labels = torch.tensor([2, 0, 1, 2])
    assert macro_f1(class_counts(answers(2, 0, 1, 2), labels)) == 1.0
    assert macro_f1(class_counts(answers(3, 3, 3, 3), labels)) == 0.0


def test_macro_f1_is_the_harmonic_mean_of_precision_and_recall() -> None:
    stream = torch.Generator().manual_seed(0)
    labels, logits = torch.randint(6, (200,), generator=stream), torch.randn(200, 9, generator=stream)
    said, scores = logits.argmax(-1), []
    for label in labels.unique():
        right = float(((said == label) & (labels == label)).sum())
        precision = right / max(float((said == label).sum()), 1)
        recall = right / float((labels == label).sum())
        scores.append(2 * precision * recall / (precision + recall) if right else 0.0)
    counts = class_counts(logits, labels)
    assert abs(macro_f1(counts) - sum(scores) / len(scores)) < 1e-12
    parts = [class_counts(logits[rows], labels[rows]) for rows in torch.arange(200).split((1, 60, 139))]
    assert torch.equal(sum(parts, torch.zeros_like(counts)), counts), "counts of parts add up to those of the whole"
