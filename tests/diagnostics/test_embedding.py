import torch

from messi.diagnostics.embedding import principal_plane


def test_a_stretched_cross_is_aligned_with_the_axes() -> None:
    # Along (0, 1, 0) by 3 and along (0, 0, -1) by 1, far from the origin.
    points = torch.tensor([[0.0, 3.0, 0.0], [0.0, -3.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, -1.0]]) + 50
    plane = principal_plane(points)
    expected = torch.tensor([[3.0, 0.0], [-3.0, 0.0], [0.0, 1.0], [0.0, -1.0]], dtype=torch.float64)
    torch.testing.assert_close(plane, expected)


def test_no_other_plane_keeps_more_variance_and_its_axes_are_uncorrelated() -> None:
    points = torch.randn(40, 6, generator=torch.Generator().manual_seed(0)) * torch.arange(1.0, 7.0)
    plane = principal_plane(points)
    variances = torch.linalg.eigvalsh(torch.cov(points.double().T))
    torch.testing.assert_close(torch.cov(plane.T), variances[[-1, -2]].diag())


def test_missing_dimensions_are_filled_with_zeros() -> None:
    assert principal_plane(torch.tensor([[1.0], [3.0]])).tolist() == [[-1, 0], [1, 0]]
    assert principal_plane(torch.ones(1, 5)).tolist() == [[0, 0]]
