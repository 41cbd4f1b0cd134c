"""Every domain counts the same."""

import math

import pytest
import torch

from messi.losses.classification import domain_mean_cross_entropy


def log_probabilities() -> torch.Tensor:
    """Return logits whose cross-entropies for class 0 are log 2, log 4 and log 8."""
    first = torch.tensor([1 / 2, 1 / 4, 1 / 8])
    return torch.stack([first, 1 - first], 1).log()


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


def test_bfloat16_logits_are_computed_in_float32() -> None:
    logits = log_probabilities().bfloat16()
    labels, domains = torch.zeros(3, dtype=torch.long), torch.tensor([0, 0, 1])
    loss = domain_mean_cross_entropy(logits, labels, domains)
    wide = domain_mean_cross_entropy(logits.float(), labels, domains)
    assert loss.dtype == torch.float32
    assert loss.item() == wide.item()
