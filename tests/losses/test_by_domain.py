"""The loss of every domain by itself."""

import math

import pytest
import torch

from messi.discrepancy.domains import membership
from messi.losses.by_domain import domain_cross_entropies, domain_means, mean_of_present
from messi.losses.classification import domain_mean_cross_entropy

LABELS, DOMAINS = torch.tensor([0, 0, 0]), torch.tensor([2, 0, 2])


def log_probabilities() -> torch.Tensor:
    """Return logits whose cross-entropies for class 0 are log 2, log 4 and log 8."""
    first = torch.tensor([1 / 2, 1 / 4, 1 / 8])
    return torch.stack([first, 1 - first], 1).log()


def test_means_by_hand_with_an_absent_domain() -> None:
    values = torch.tensor([1.0, 5.0, 2.0])
    assert domain_means(values, membership(DOMAINS, 3)).tolist() == [5, 0, 1.5]


def test_cross_entropies_by_hand() -> None:
    losses, present = domain_cross_entropies(log_probabilities(), LABELS, DOMAINS, 4)
    # log 4 in domain 0, the mean of log 2 and log 8 in domain 2
    assert losses.tolist() == pytest.approx([2 * math.log(2), 0, 2 * math.log(2), 0], rel=1e-6)
    assert present.tolist() == [True, False, True, False]


def test_their_mean_is_the_classification_term() -> None:
    losses, present = domain_cross_entropies(log_probabilities(), LABELS, DOMAINS, 4)
    expected = domain_mean_cross_entropy(log_probabilities(), LABELS, DOMAINS)
    torch.testing.assert_close(mean_of_present(losses, present), expected)


def test_bfloat16_logits_are_computed_in_float32() -> None:
    logits = log_probabilities().bfloat16()
    losses, _ = domain_cross_entropies(logits, LABELS, DOMAINS, 3)
    assert losses.dtype == torch.float32
    assert torch.equal(losses, domain_cross_entropies(logits.float(), LABELS, DOMAINS, 3)[0])
