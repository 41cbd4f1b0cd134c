"""Centring of padded clouds."""

import pytest
import torch

from messi.discrepancy.clouds import averaging, centred, counts

from .helpers import padded, random_cloud


def test_counts_and_means_leave_the_padding_out() -> None:
    clouds = [random_cloud(size, seed=size) for size in (1, 3, 4)]
    points, mask = padded(clouds, to=6, garbage=1e30)
    assert counts(mask).tolist() == [1, 3, 4]
    means = torch.stack([cloud.mean(0) for cloud in clouds])
    # Float64 in, float64 accuracy out.
    torch.testing.assert_close((averaging(mask, points.dtype) @ points).squeeze(1), means, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_centred_points_plus_mean_give_the_points_back_and_have_mean_zero(offset: float) -> None:
    clouds = [random_cloud(size, seed=size, dtype=torch.float32) + offset for size in (1, 3, 4)]
    points, mask = padded(clouds, to=6, garbage=3.0)
    rest, mean, mean_of_rest = centred(points, mask)
    two_roundings = 2 * torch.finfo(torch.float32).eps
    torch.testing.assert_close((rest + mean[:, None])[mask], points[mask], rtol=two_roundings, atol=two_roundings)
    exact = torch.stack([cloud.double().mean(0) for cloud in clouds])
    torch.testing.assert_close(mean.double() + mean_of_rest.double(), exact, rtol=1e-9, atol=1e-7)
