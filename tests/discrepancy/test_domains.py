"""Domain membership, and means over pairs of domains."""

import itertools

import pytest
import torch

from messi.discrepancy.domains import mean_over_pairs, membership, ranks

DOMAINS = torch.tensor([2, 0, 2, 3, 0, 2])
"""Domain 1 is absent and domain 3 has one example."""


def test_membership_by_hand() -> None:
    expected = [[0, 1, 0, 0, 1, 0], [0, 0, 0, 0, 0, 0], [1, 0, 1, 0, 0, 1], [0, 0, 0, 1, 0, 0]]
    assert membership(DOMAINS, 4).int().tolist() == expected


def test_ranks_count_the_examples_of_a_domain_in_the_order_of_the_batch() -> None:
    assert ranks(membership(DOMAINS, 4)).tolist() == [0, 0, 1, 0, 1, 2]


def test_two_points_by_hand_with_garbage_in_an_absent_domain() -> None:
    # (1, 2) and (4, 6) are 5 apart.
    gram = torch.tensor([[5.0, torch.nan, 16.0], [torch.nan, torch.inf, torch.nan], [16.0, torch.nan, 52.0]])
    assert mean_over_pairs(gram, torch.tensor([True, False, True])).item() == 25


@pytest.mark.parametrize("present", [[1, 1, 1, 1, 1], [0, 1, 0, 1, 1]])
def test_mean_is_that_of_the_pairs(present: list[int]) -> None:
    points = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    pairs = itertools.combinations([point for point, here in zip(points, present, strict=True) if here], 2)
    expected = torch.stack([(first - second).square().sum() for first, second in pairs]).mean()
    found = mean_over_pairs(points @ points.T, torch.tensor(present, dtype=torch.bool))
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("present", [[True, False], [False, False]])
def test_without_a_pair_the_mean_is_zero(present: list[bool]) -> None:
    assert mean_over_pairs(torch.ones(2, 2), torch.tensor(present)).item() == 0
