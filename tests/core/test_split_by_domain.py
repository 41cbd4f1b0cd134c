"""Batches split by domain."""

import pytest
import torch

from messi.core.errors import MessiError
from messi.core.split_by_domain import SplitByDomain


def test_rows_are_the_sorted_domains_for_any_order_of_the_batch() -> None:
    rows = SplitByDomain()(torch.tensor([2, 0, 1, 0, 2, 1]))
    assert rows.tolist() == [[1, 3], [2, 5], [0, 4]]


def test_a_batch_of_a_few_domains_has_as_many_rows() -> None:
    cut = SplitByDomain()
    assert cut(torch.tensor([7, 3, 3, 7])).tolist() == [[1, 2], [0, 3]]
    assert cut(torch.tensor([5, 5, 0, 0])).tolist() == [[2, 3], [0, 1]]


@pytest.mark.parametrize(("domains", "shape"), [([4, 4, 4], (1, 3)), ([2, 0, 1], (3, 1))])
def test_one_domain_is_one_row_and_one_example_each_is_one_column(domains: list[int], shape: tuple[int, int]) -> None:
    assert SplitByDomain()(torch.tensor(domains)).shape == shape


def test_domains_of_unequal_size_are_refused() -> None:
    cut = SplitByDomain()
    cut(torch.tensor([0, 0, 1, 1]))
    with pytest.raises(MessiError, match="same number of examples of each in a batch, but they have 3, 1"):
        cut(torch.tensor([0, 0, 0, 1]))
