"""Slow float64 references, written from the definitions for one pair of clouds at a time; tests compare with them.

Legend: N and P points, R features, M experts, B examples.
"""

import itertools
import math

import torch
from torch import Tensor


def squared_distances(x: Tensor, y: Tensor) -> Tensor:
    """Return |x_p - y_q|^2: x [N, R], y [P, R] -> [N, P]."""
    return (x[:, None, :] - y[None, :, :]).square().sum(-1)


def entropic_ot(x: Tensor, y: Tensor, *, epsilon: float, iterations: int = 10_000) -> tuple[Tensor, Tensor]:
    """Return the primal value <g, C> + eps KL(g | P x Q) and the plan g, with many plain Sinkhorn iterations."""
    cost = squared_distances(x.detach().double(), y.detach().double())
    n, p = cost.shape
    f, g = cost.new_zeros(n), cost.new_zeros(p)
    for _ in range(iterations):
        f = -epsilon * torch.logsumexp((g[None, :] - cost) / epsilon - math.log(p), dim=1)
        g = -epsilon * torch.logsumexp((f[:, None] - cost) / epsilon - math.log(n), dim=0)
    log_ratio = (f[:, None] + g[None, :] - cost) / epsilon
    plan = log_ratio.exp() / (n * p)
    differentiable_cost = squared_distances(x.double(), y.double())
    return (plan * differentiable_cost).sum() + epsilon * (plan * log_ratio).sum(), plan


def sinkhorn_divergence(x: Tensor, y: Tensor, *, epsilon: float, iterations: int = 10_000) -> Tensor:
    """Return W_eps(P, Q) - W_eps(P, P) / 2 - W_eps(Q, Q) / 2."""
    apart, own_x, own_y = (
        entropic_ot(a, b, epsilon=epsilon, iterations=iterations)[0] for a, b in ((x, y), (x, x), (y, y))
    )
    return apart - own_x / 2 - own_y / 2


def mmd_squared(x: Tensor, y: Tensor, *, bandwidths: tuple[float, ...]) -> Tensor:
    """Return E k(x, x') + E k(y, y') - 2 E k(x, y) with k summed over the bandwidths."""

    def kernel(a: Tensor, b: Tensor) -> Tensor:
        distances = squared_distances(a.double(), b.double())
        return torch.stack([torch.exp(-distances / (2 * s**2)) for s in bandwidths]).sum(0).mean()

    return kernel(x, x) + kernel(y, y) - 2 * kernel(x, y)


def slots(labels: Tensor, domains: Tensor) -> list[tuple[list[int], list[int]]]:
    """Return the examples of both cells, for every class and pair of domains that have it."""
    cells: dict[tuple[int, int], list[int]] = {}
    for index, key in enumerate(zip(labels.tolist(), domains.tolist(), strict=True)):
        cells.setdefault(key, []).append(index)
    pairs = itertools.combinations(sorted(cells), 2)
    return [(cells[first], cells[second]) for first, second in pairs if first[0] == second[0]]


def slot_weights(
    routing: Tensor, labels: Tensor, domains: Tensor, *, sharpness: float, slot_weight: str = "sigmoid"
) -> Tensor:
    """Return a_ijc of every slot and expert in one row: routing [B, M], labels [B], domains [B] -> [S M]."""
    mass = routing.detach().double()

    def gate(cell: list[int]) -> Tensor:
        rho = mass[cell].mean(0)
        if slot_weight == "product":
            return rho
        return torch.sigmoid(sharpness * (rho if slot_weight == "sigmoid" else len(rho) * rho - 1))

    return torch.cat([gate(first) * gate(second) for first, second in slots(labels, domains)])


def slot_values(
    features: Tensor,
    labels: Tensor,
    domains: Tensor,
    *,
    epsilon: float,
    debiased: bool = False,
    iterations: int = 10_000,
) -> Tensor:
    """Return W_eps (absolute epsilon), or the Sinkhorn divergence, of every slot and expert: [M, B, R] -> [S M]."""

    def value(x: Tensor, y: Tensor) -> Tensor:
        if debiased:
            return sinkhorn_divergence(x, y, epsilon=epsilon, iterations=iterations)
        return entropic_ot(x, y, epsilon=epsilon, iterations=iterations)[0]

    pairs = itertools.product(slots(labels, domains), features)
    return torch.stack([value(outputs[first], outputs[second]) for (first, second), outputs in pairs])
