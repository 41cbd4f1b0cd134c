"""The distance to the training domains, against scikit-learn and against cases with a known answer."""

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import NearestNeighbors

from messi.diagnostics.novelty import ACCEPTED, NEIGHBOURS, Bank, auroc, measure


def clouds(*centres: int, number: int = 40, width: int = 8, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Return points around different axes, and the cloud of each."""
    random = torch.Generator().manual_seed(seed)
    points = [5 * torch.eye(width)[axis] + torch.randn(number, width, generator=random) for axis in centres]
    return torch.cat(points), torch.arange(len(centres)).repeat_interleave(number)


def test_the_distance_is_that_of_scikit_learns_neighbours() -> None:
    features, domains = clouds(0, 1)
    inputs, _ = clouds(0, 2, seed=1)
    bank = Bank.of(features, domains)
    found = NearestNeighbors(n_neighbors=NEIGHBOURS, metric="cosine").fit(features.numpy())
    expected = found.kneighbors(inputs.numpy())[0].mean(1)
    np.testing.assert_allclose(bank.judge(inputs).distance.numpy(), expected, atol=1e-6)
    own = found.kneighbors()[0].mean(1)  # without the example itself
    np.testing.assert_allclose(bank.without_self().distance.numpy(), own, atol=1e-6)
    assert bank.threshold() == pytest.approx(float(np.quantile(own, ACCEPTED)), abs=1e-6)


def test_the_distance_does_not_depend_on_the_rest_of_the_batch() -> None:
    bank = Bank.of(*clouds(0, 1))
    inputs, _ = clouds(0, 3, seed=1)
    alone = torch.cat([bank.judge(one[None]).distance for one in inputs])
    torch.testing.assert_close(alone, bank.judge(inputs).distance, rtol=0, atol=1e-6)


def test_only_features_longer_than_all_known_ones_are_farther_away_for_their_length() -> None:
    features, domains = clouds(0, 1)
    bank = Bank.of(features, domains)
    at_most = features / features.norm(dim=1, keepdim=True) * bank.longest
    torch.testing.assert_close(bank.judge(at_most).distance, bank.judge(features).distance, rtol=0, atol=1e-5)
    beyond = bank.judge(1000 * at_most).distance - bank.judge(at_most).distance
    torch.testing.assert_close(beyond, torch.full((80,), 1000.0).log(), rtol=0, atol=1e-4)
    assert bank.judge(torch.zeros(1, 8)).distance.isfinite().all()


def test_auroc_is_scikit_learns_also_with_ties() -> None:
    random = torch.Generator().manual_seed(0)
    known, unseen = (torch.randint(0, 9, (number,), generator=random).float() for number in (50, 30))
    truth = [0] * 50 + [1] * 30
    assert auroc(known, unseen + 1) == pytest.approx(roc_auc_score(truth, torch.cat([known, unseen + 1])))
    assert auroc(known, known) == 0.5


def test_an_unseen_cloud_gets_the_warning_and_a_known_one_does_not() -> None:
    features, domains = clouds(0, 1)
    quality = measure(Bank.of(features, domains), ("a", "b"), {"far": clouds(4)[0], "known": clouds(0, seed=7)[0]})
    assert quality.target["far"].warned == quality.target["far"].auroc == 1
    assert quality.target["known"].warned < 0.3
    assert 0.3 < quality.target["known"].auroc < 0.7
    assert quality.left_out.keys() == {"a", "b"}
    assert all(one.warned == 1 and one.examples == 40 for one in quality.left_out.values())
    assert quality.nearest_right == 1


def test_the_nearest_domain_is_named_also_if_another_one_has_few_examples() -> None:
    features, domains = clouds(0, 1, 2)
    kept = torch.cat([torch.arange(40), torch.tensor([40]), torch.arange(80, 120)])
    bank = Bank.of(features[kept], domains[kept])
    inputs, expected = clouds(0, 1, 2, seed=3)
    assert (bank.judge(inputs).nearest == expected).float().mean() > 0.95
    assert bank.without_self().nearest[40] != 1  # its domain has no other example
    assert bank.without_self().distance.isfinite().all()


def test_a_single_domain_has_a_threshold_but_nothing_to_leave_out() -> None:
    features, domains = clouds(0)
    quality = measure(Bank.of(features, domains), ("only",), {})
    assert (quality.left_out, quality.target, quality.nearest_right) == ({}, {}, None)
    assert Bank.of(features, domains).judge(features).distance.max() <= Bank.of(features, domains).threshold() + 1
