"""The distance to the training domains, against scikit-learn and against cases with a known answer."""

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import NearestNeighbors

from messi.diagnostics.novelty import ACCEPTED, NEIGHBOURS, Bank, auroc, measure


def clouds(*centres: int, number: int = 40, width: int = 8, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Return clouds of normal points, 14 standard deviations apart, and the cloud of each point."""
    random = torch.Generator().manual_seed(seed)
    points = [10 * torch.eye(width)[axis] + torch.randn(number, width, generator=random) for axis in centres]
    return torch.cat(points), torch.arange(len(centres)).repeat_interleave(number)


def test_the_distance_is_that_of_scikit_learns_neighbours() -> None:
    features, domains = clouds(0, 1)
    inputs, _ = clouds(0, 2, seed=1)
    bank = Bank(features, domains)
    found = NearestNeighbors(n_neighbors=NEIGHBOURS, metric="euclidean").fit(features.numpy())
    expected = found.kneighbors(inputs.numpy())[0].mean(1)
    np.testing.assert_allclose(bank.judge(inputs).distance.numpy(), expected, atol=1e-6)
    own = found.kneighbors()[0].mean(1)  # without the example itself
    np.testing.assert_allclose(bank.without_self().distance.numpy(), own, atol=1e-6)
    assert bank.threshold() == pytest.approx(float(np.quantile(own, ACCEPTED)), abs=1e-6)


def test_the_distance_does_not_depend_on_the_rest_of_the_batch() -> None:
    bank = Bank(*clouds(0, 1))
    inputs, _ = clouds(0, 3, seed=1)
    alone = torch.cat([bank.judge(one[None]).distance for one in inputs])
    torch.testing.assert_close(alone, bank.judge(inputs).distance, rtol=0, atol=1e-6)


@pytest.mark.parametrize("absurd", [1e30, -3e38])
def test_an_absurd_number_is_finitely_far_away_and_unlike_the_bank(absurd: float) -> None:
    bank = Bank(*clouds(0, 1))
    inputs, _ = clouds(0, seed=1)
    inputs[:, 3] = absurd
    distance = bank.judge(inputs).distance
    torch.testing.assert_close(distance, torch.full((40,), abs(absurd), dtype=torch.float64), rtol=1e-6, atol=0)
    assert (distance > bank.threshold()).all()
    assert bank.detection(inputs).warned == 1


def test_rows_that_equal_known_ones_get_no_warning_however_large_their_numbers_are() -> None:
    random = torch.Generator().manual_seed(0)
    kinds = 1e4 + torch.rand(9, 30, generator=random)
    bank = Bank(kinds.repeat(10, 1), torch.arange(2).repeat_interleave(45))
    assert bank.threshold() == 0
    assert (bank.judge(kinds).distance == 0).all()
    assert bank.detection(kinds + 1e-2).warned == 1


def test_auroc_is_scikit_learns_also_with_ties() -> None:
    random = torch.Generator().manual_seed(0)
    known, unseen = (torch.randint(0, 9, (number,), generator=random).float() for number in (50, 30))
    truth = [0] * 50 + [1] * 30
    assert auroc(known, unseen + 1) == pytest.approx(roc_auc_score(truth, torch.cat([known, unseen + 1])))
    assert auroc(known, known) == 0.5


def test_an_unseen_cloud_gets_the_warning_and_a_known_one_does_not() -> None:
    features, domains = clouds(0, 1)
    quality = measure(Bank(features, domains), ("a", "b"), {"far": clouds(4)[0], "known": clouds(0, seed=7)[0]})
    assert quality.target["far"].warned == quality.target["far"].auroc == 1
    assert quality.target["known"].warned < 0.3
    assert 0.3 < quality.target["known"].auroc < 0.7
    assert quality.left_out.keys() == {"a", "b"}
    assert all(one.warned == 1 and one.examples == 40 for one in quality.left_out.values())
    assert quality.nearest_right == 1


def test_the_nearest_domain_is_named_also_if_another_one_has_few_examples() -> None:
    features, domains = clouds(0, 1, 2)
    kept = torch.cat([torch.arange(40), torch.tensor([40]), torch.arange(80, 120)])
    bank = Bank(features[kept], domains[kept])
    inputs, expected = clouds(0, 1, 2, seed=3)
    assert (bank.judge(inputs).nearest == expected).float().mean() > 0.95
    assert bank.without_self().nearest[40] != 1  # its domain has no other example
    assert bank.without_self().distance.isfinite().all()


def test_a_single_domain_has_a_threshold_but_nothing_to_leave_out() -> None:
    features, domains = clouds(0)
    quality = measure(Bank(features, domains), ("only",), {})
    assert (quality.left_out, quality.target, quality.nearest_right) == ({}, {}, None)
    assert Bank(features, domains).judge(features).distance.max() <= Bank(features, domains).threshold() + 1
