"""Metrics of predictions."""

import pytest
import torch
from sklearn import metrics as sklearn_metrics
from sklearn.dummy import DummyClassifier
from torch.nn import functional

from messi.evaluation.metrics import balanced_accuracy, class_counts, class_scores, macro_f1, majority_share


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


@pytest.mark.parametrize("shares", [(0.8, 0.15, 0.05), (0.98, 0.02), (0.25, 0.25, 0.25, 0.25)])
def test_scores_of_classes_agree_with_scikit_learn(shares: tuple[float, ...]) -> None:
    stream = torch.Generator().manual_seed(len(shares))
    labels = torch.multinomial(torch.tensor(shares), 300, replacement=True, generator=stream)
    logits = torch.randn(300, len(shares), generator=stream) + 2 * functional.one_hot(labels, len(shares))
    said, found = logits.argmax(-1), class_scores(class_counts(logits, labels))
    occurring = labels.unique().tolist()
    assert found.balanced_accuracy == pytest.approx(sklearn_metrics.balanced_accuracy_score(labels, said), abs=1e-12)
    expected = sklearn_metrics.f1_score(labels, said, labels=occurring, average="macro")
    assert found.macro_f1 == pytest.approx(expected, abs=1e-12)
    constant = DummyClassifier(strategy="most_frequent").fit(logits.numpy(), labels.numpy())
    assert found.majority_share == pytest.approx(constant.score(logits.numpy(), labels.numpy()), abs=1e-12)


def test_a_constant_answer_has_the_majority_share_as_accuracy_and_chance_as_balanced_accuracy() -> None:
    labels = torch.tensor([0] * 80 + [1] * 15 + [2] * 5)
    counts = class_counts(answers(*[0] * 100), labels)
    assert majority_share(counts) == 0.8
    assert balanced_accuracy(counts) == pytest.approx(1 / 3)
    assert macro_f1(counts) == pytest.approx(2 * 0.8 / 1.8 / 3)
