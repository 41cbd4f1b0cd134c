import pytest
import torch
from torch.nn import functional

from messi.diagnostics.probe import domain_probe, fit_logistic


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_separated_domains_are_always_identified() -> None:
    domains, labels = torch.arange(60) % 3, torch.arange(60) % 2
    features = functional.one_hot(domains, 3) + 0.01 * torch.randn(60, 3, generator=generator())
    probe = domain_probe(features, labels, domains, generator=generator())
    assert probe is not None
    assert probe.accuracy == 1
    assert probe.chance == pytest.approx(1 / 3)


def test_differences_between_classes_do_not_identify_the_domain() -> None:
    # Domain 0 has mostly class 0 and domain 1 mostly class 1: over all classes, the label would predict the domain.
    labels = torch.tensor([0] * 90 + [1] * 10 + [0] * 10 + [1] * 90)
    domains = torch.arange(200) // 100
    features = functional.one_hot(labels, 2).float()
    probe = domain_probe(features, labels, domains, generator=generator())
    assert probe is not None
    assert (probe.accuracy, probe.chance) == (0.5, 0.5)


def test_noise_gives_chance_for_domains_of_any_size() -> None:
    sizes = torch.tensor([700, 200, 100])
    domains = torch.arange(3).repeat_interleave(sizes)
    features, labels = torch.randn(1000, 4, generator=generator(1)), torch.zeros(1000, dtype=torch.long)
    probe = domain_probe(features, labels, domains, generator=generator())
    assert probe is not None
    # The mean of three accuracies, over 350, 100 and 50 examples, has a standard deviation of 0.03.
    assert probe.accuracy == pytest.approx(1 / 3, abs=0.09)


def test_the_probe_is_tested_on_other_examples_than_it_is_fitted_to() -> None:
    # With more features than examples, a fit is perfect on its own half and can only guess on the other.
    domains, labels = torch.arange(100) % 2, torch.zeros(100, dtype=torch.long)
    probe = domain_probe(torch.randn(100, 300, generator=generator(2)), labels, domains, generator=generator())
    assert probe is not None
    assert probe.accuracy < 0.7


def test_domains_with_few_examples_of_a_class_take_no_part() -> None:
    labels = torch.zeros(15, dtype=torch.long)
    domains = torch.tensor([0] * 6 + [1] * 6 + [2] * 3)
    features = domains[:, None].float()
    probe = domain_probe(features, labels, domains, generator=generator())
    assert probe is not None
    assert (probe.accuracy, probe.chance) == (1, 0.5)
    assert domain_probe(features[6:], labels[6:], domains[6:], generator=generator()) is None


@pytest.mark.parametrize(("examples", "width"), [(40, 3), (12, 30)])
def test_the_gradient_of_the_objective_vanishes_at_the_fit(examples: int, width: int) -> None:
    inputs = torch.randn(examples, width, generator=generator(), dtype=torch.float64)
    classes = torch.arange(examples) % 4 % 3
    weights, bias = (value.requires_grad_() for value in fit_logistic(inputs, classes, num_classes=3))
    counts = torch.bincount(classes)
    objective = weights.square().sum() / 2
    for row, label in zip(inputs, classes.tolist(), strict=True):
        share = examples / (3 * counts[label])
        objective = objective - share * (row @ weights + bias).log_softmax(-1)[label]
    for gradient in torch.autograd.grad(objective, (weights, bias)):
        assert gradient.abs().max() < 1e-4, "the summed loss falls by less than 1e-8 from here"
