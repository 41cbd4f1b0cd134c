"""The synthetic data of the theorem."""

import torch

from messi.data.datasets.two_subsets import TwoSubsets


def test_each_subset_has_its_own_predictive_feature() -> None:
    examples = TwoSubsets().load()
    assert isinstance(examples.inputs, torch.Tensor)
    sign = 2 * examples.labels - 1
    first, second, style = examples.inputs.T
    in_b = examples.domains >= 2
    assert torch.equal(first[~in_b], sign[~in_b].float())
    assert torch.equal(second[in_b], sign[in_b].float())
    assert (first * sign)[in_b].mean().abs() < 0.15
    assert (second * sign)[~in_b].mean().abs() < 0.15
    assert torch.equal(style > 0, in_b)
