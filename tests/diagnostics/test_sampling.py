import torch

from messi.diagnostics.sampling import at_most_per_cell, balanced, spaced


def test_spaced_places() -> None:
    assert spaced(10, 5).tolist() == [0, 2, 4, 6, 8]
    assert spaced(3, 5).tolist() == [0, 1, 2]
    assert spaced(0, 5).tolist() == []


def test_cells_keep_their_examples_up_to_the_limit() -> None:
    labels = torch.tensor([0] * 10 + [1] * 2 + [0] * 3)
    domains = torch.tensor([0] * 12 + [1] * 3)
    rows = at_most_per_cell(labels, domains, most=3, generator=torch.Generator().manual_seed(0))
    assert rows.tolist() == sorted(set(rows.tolist()))
    assert (rows < 10).sum() == 3
    assert rows[3:].tolist() == [10, 11, 12, 13, 14]


def test_every_example_of_a_cell_is_equally_likely() -> None:
    generator, zeros = torch.Generator().manual_seed(0), torch.zeros(6, dtype=torch.long)
    drawn = torch.cat([at_most_per_cell(zeros, zeros, most=2, generator=generator) for _ in range(600)])
    # 200 each on average, with a standard deviation of 11.5.
    assert (torch.bincount(drawn, minlength=6) - 200).abs().max() < 46


def test_groups_get_equally_many_places_and_very_many_groups_are_thinned_out() -> None:
    groups = torch.tensor([0] * 100 + [1] * 2 + [2] * 50)
    rows = balanced(groups, most=30)
    assert torch.bincount(groups[rows]).tolist() == [10, 2, 10]
    assert balanced(torch.arange(100).repeat(3), most=10).tolist() == list(range(0, 100, 10))
