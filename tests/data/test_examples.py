"""The digest of examples, and whether their classes are balanced."""

import pytest
import torch

from messi.data.datasets.rotated_colored_mnist import RotatedColoredMNIST
from messi.data.datasets.two_subsets import TwoSubsets
from messi.data.examples import Examples, are_unbalanced, digest


def test_the_fingerprint_changes_with_inputs_labels_and_domains() -> None:
    inputs, labels, domains = torch.rand(4, 2), torch.tensor([0, 1, 0, 1]), torch.tensor([0, 0, 1, 1])
    whole = {digest(inputs, labels, domains), digest(inputs, 1 - labels, domains), digest(inputs, labels, 1 - domains)}
    assert len({*whole, digest(inputs + 1, labels, domains)}) == 4
    assert digest(inputs, labels, domains) in whole


def with_counts(*domains: tuple[int, ...]) -> Examples:
    """Return examples with the given number of each class in each domain."""
    labels = [label for counts in domains for label, number in enumerate(counts) for _ in range(number)]
    places = [place for place, counts in enumerate(domains) for _ in range(sum(counts))]
    classes, names = (tuple(map(str, range(n))) for n in (len(domains[0]), len(domains)))
    return Examples(torch.zeros(len(labels), 1), torch.tensor(labels), torch.tensor(places), classes, names, "")


@pytest.mark.parametrize(
    ("domains", "unbalanced"),
    [
        ([(80, 15, 5)], True),
        ([(10, 10, 10), (80, 15, 5)], True),
        ([(66, 33), (33, 66)], False),
        ([(67, 33)], True),
        ([(20, 10, 10)], False),
        ([(21, 10, 10)], True),
        ([(50, 0, 0), (0, 50, 50)], False),
        ([(0, 30, 61), (50, 50, 50)], True),
    ],
)
def test_classes_are_unbalanced_if_one_is_over_twice_as_frequent_as_the_others_on_average(
    domains: list[tuple[int, ...]], unbalanced: bool
) -> None:
    """In any domain; classes that do not occur there do not count, and a single class is not unbalanced."""
    assert are_unbalanced(with_counts(*domains)) is unbalanced


def test_the_data_sets_of_the_paper_that_are_generated_are_balanced() -> None:
    assert not are_unbalanced(TwoSubsets(per_domain=50).load())
    assert not are_unbalanced(RotatedColoredMNIST().load())
