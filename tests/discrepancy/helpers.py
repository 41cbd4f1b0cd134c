"""Small point clouds, their padded batches, and reference values."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from messi.discrepancy import reference
from messi.discrepancy.sinkhorn import entropic_ot


def random_cloud(size: int, width: int = 5, *, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(size, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def padded(clouds: Sequence[Tensor], *, to: int, garbage: float = 0.0) -> tuple[Tensor, Tensor]:
    """Stack ragged clouds as [len(clouds), to, R], with the mask; the padding holds ``garbage``."""
    points = torch.full((len(clouds), to, clouds[0].shape[1]), garbage, dtype=clouds[0].dtype)
    mask = torch.zeros(len(clouds), to, dtype=torch.bool)
    for index, cloud in enumerate(clouds):
        points[index, : len(cloud)] = cloud
        mask[index, : len(cloud)] = True
    return points, mask


def everywhere(points: Tensor) -> Tensor:
    """Return the mask of a batch without padding."""
    return torch.ones(points.shape[:-1], dtype=torch.bool)


def one_pair(x: Tensor, y: Tensor, *, epsilon: float, iterations: int) -> Tensor:
    return entropic_ot(x, y, everywhere(x), everywhere(y), epsilon=epsilon, iterations=iterations)


def mean_of_costs(x: Tensor, y: Tensor) -> float:
    return reference.squared_distances(x.double(), y.double()).mean().item()


def converged_twin(x: Tensor, y: Tensor, *, epsilon: float, iterations: int = 300) -> Tensor:
    """Return the twin's value after checking that it has converged: the rows have their mass, too."""
    value, plan = reference.entropic_ot(x, y, epsilon=epsilon, iterations=iterations)
    assert float((plan.sum(1) * len(x) - 1).abs().max()) < 1e-9
    return value


def dual_value(x: Tensor, y: Tensor, *, epsilon: float, iterations: int) -> float:
    """Return the dual value after a fixed number of rounds on the centred clouds, in float64.

    The twin returns the primal value, which is the same number only at convergence.
    """
    x, y = x.detach().double(), y.detach().double()
    cost = reference.squared_distances(x - x.mean(0), y - y.mean(0))
    f, g = cost.new_zeros(len(x)), cost.new_zeros(len(y))
    for _ in range(iterations):
        f = -epsilon * torch.logsumexp((g[None, :] - cost) / epsilon - math.log(len(y)), dim=1)
        g = -epsilon * torch.logsumexp((f[:, None] - cost) / epsilon - math.log(len(x)), dim=0)
    return float(f.mean() + g.mean() + (x.mean(0) - y.mean(0)).square().sum())


def relative_error(actual: Tensor, expected: Tensor) -> float:
    """Return |actual - expected| / |expected| in the Euclidean norm."""
    return float((actual.double() - expected.double()).norm() / expected.double().norm())
