import math

import pytest
import torch

from messi.diagnostics.specialisation import SpecialisationTally, effective_rank


def tallied(outputs: torch.Tensor, *, size: int = 100) -> SpecialisationTally:
    tally = SpecialisationTally(len(outputs))
    for part in outputs.split(size, dim=1):
        tally.update(part)
    return tally


def test_equal_orthogonal_and_opposite_experts_by_hand() -> None:
    right, up = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 2.0])
    outputs = torch.stack([right, up, -right]).unsqueeze(1)
    found = tallied(outputs).result()
    assert found.cosine.tolist() == [[1, 0, -1], [0, 1, 0], [-1, 0, 1]]
    assert found.mean_off_diagonal == pytest.approx(-1 / 3)


def test_the_cosine_is_averaged_over_examples_and_not_of_the_means() -> None:
    # Equal in one example and opposite in the other, where both are much longer.
    outputs = torch.tensor([[[1.0], [9.0]], [[1.0], [-9.0]]])
    assert tallied(outputs, size=1).result().cosine[0, 1].item() == 0


def test_the_effective_rank_counts_directions() -> None:
    row = torch.ones(1, 4, 3)
    assert tallied(row.repeat(5, 1, 1)).result().effective_rank == pytest.approx(1)
    apart = torch.eye(5).unsqueeze(1)
    assert tallied(apart).result().effective_rank == pytest.approx(5)
    # exp(entropy of (3/4, 1/4)) = (4/3)^(3/4) 4^(1/4)
    assert effective_rank(torch.tensor([3.0, 1.0])) == pytest.approx((4 / 3) ** 0.75 * 4**0.25)


def test_batches_give_the_rank_of_the_matrix_of_all_outputs() -> None:
    outputs = torch.randn(4, 30, 6, generator=torch.Generator().manual_seed(0))
    outputs[3] = outputs[0] + 0.1 * outputs[1]
    singular = torch.linalg.svdvals(outputs.flatten(1).double())
    # A singular value of zero is the root of a rounding error.
    assert tallied(outputs, size=7).result().effective_rank == pytest.approx(effective_rank(singular), rel=1e-5)


def test_a_single_expert_has_no_pair() -> None:
    assert math.isnan(tallied(torch.ones(1, 2, 3)).result().mean_off_diagonal)
