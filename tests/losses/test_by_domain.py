"""Losses per domain, and the classification term in which every domain counts equally."""

import math

import pytest
import torch

from messi.discrepancy.domains import membership
from messi.losses.by_domain import (
    domain_cross_entropies,
    domain_mean_cross_entropy,
    domain_means,
    mean_of_present,
)

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


def test_cross_entropies_of_bfloat16_logits_are_computed_in_float32() -> None:
    logits = log_probabilities().bfloat16()
    losses, _ = domain_cross_entropies(logits, LABELS, DOMAINS, 3)
    assert losses.dtype == torch.float32
    assert torch.equal(losses, domain_cross_entropies(logits.float(), LABELS, DOMAINS, 3)[0])


def test_mean_of_domain_means_by_hand_with_unequal_domains_and_an_absent_one() -> None:
    labels, domains = torch.zeros(3, dtype=torch.long), torch.tensor([0, 0, 2])
    loss = domain_mean_cross_entropy(log_probabilities(), labels, domains)
    # ((log 2 + log 4) / 2 + log 8) / 2, domain 1 being absent
    assert loss.item() == pytest.approx(2.25 * math.log(2), rel=1e-6)


def test_gradient_weighs_examples_by_their_domains_size() -> None:
    logits = log_probabilities().requires_grad_()
    labels, domains = torch.zeros(3, dtype=torch.long), torch.tensor([0, 0, 2])
    (gradient,) = torch.autograd.grad(domain_mean_cross_entropy(logits, labels, domains), logits)
    # p - 1 for the label's logit, times 1/4, 1/4 and 1/2
    assert gradient[:, 0].tolist() == pytest.approx([-1 / 8, -3 / 16, -7 / 16], rel=1e-6)


def test_order_of_the_domains_does_not_matter() -> None:
    labels = torch.tensor([0, 1, 1])
    losses = {
        domain_mean_cross_entropy(log_probabilities(), labels, torch.tensor(domains)).item()
        for domains in ([0, 0, 2], [4, 4, 1], [3, 3, 0])
    }
    assert len(losses) == 1


def test_classification_term_of_bfloat16_logits_is_computed_in_float32() -> None:
    logits = log_probabilities().bfloat16()
    labels, domains = torch.zeros(3, dtype=torch.long), torch.tensor([0, 0, 1])
    loss = domain_mean_cross_entropy(logits, labels, domains)
    wide = domain_mean_cross_entropy(logits.float(), labels, domains)
    assert loss.dtype == torch.float32
    assert loss.item() == wide.item()
