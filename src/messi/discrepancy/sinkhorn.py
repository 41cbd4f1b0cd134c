"""Entropic optimal transport between many pairs of small point clouds at once.

    W_eps(P, Q) = min_g <g, C> + eps KL(g | P x Q),    C = squared Euclidean distance, uniform marginals

No library solves ragged batches (POT and geomloss require equal sizes). Three facts make the code short and fast:

- Envelope theorem: the gradient of the value with respect to the cost is the optimal plan, so no iteration is
  stored or differentiated.
- ``W_eps(P, Q) = W_eps(P - p, Q - q) + |s|^2 + 2 <s, mean(P - p) - mean(Q - q)>`` with ``s = p - q``, for any p and q.
  Solving the centred problem makes the value of a translated cloud exact for every number of iterations, and keeps
  float32 accurate far from the origin.
- A cloud of one point has only one plan, which the first iteration finds.

Legend: ``*`` leading dimensions, N and P padded numbers of points, R features, L all pairs of clouds in one row.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from messi.discrepancy.clouds import averaging, centred, counts


def entropic_ot(
    x: Tensor,
    y: Tensor,
    x_mask: Tensor,
    y_mask: Tensor,
    *,
    epsilon: float,
    iterations: int,
    relative: bool = False,
) -> Tensor:
    """Return W_eps of each pair of clouds.

    Args:
        x: [*, N, R] points of the first clouds, float32 or float64, finite at the padding too.
        y: [*, P, R] points of the second clouds.
        x_mask: [*, N] True where x holds a point; every cloud has at least one.
        y_mask: [*, P] the same for y.
        epsilon: strength of the entropic term.
        iterations: Sinkhorn iterations, each of which updates both potentials.
        relative: measure epsilon in units of the mean cost of all pairs of points in the batch, a constant for the
            gradient, instead of units of the cost.

    Returns:
        [*] values of the dual problem, a lower bound that converges as ``iterations`` grows.

    """
    value: Tensor = _EntropicOT.apply(x, y, x_mask, y_mask, epsilon, iterations, relative)[0]
    return value


def sinkhorn_divergence(
    points: Tensor,
    mask: Tensor,
    first: Tensor,
    second: Tensor,
    *,
    epsilon: float,
    iterations: int,
    relative: bool = False,
) -> Tensor:
    """Return W_eps(P, Q) - W_eps(P, P) / 2 - W_eps(Q, Q) / 2 of pairs of G clouds; 0 if P and Q are equal.

    Every cloud is compared with itself only once. A relative epsilon is in units of the mean cost between the clouds
    of all pairs and the same in all three terms.

    Args:
        points: [*, G, N, R] points of the clouds, as in :func:`entropic_ot`.
        mask: [*, G, N] True where ``points`` holds a point.
        first: [S] index of the first cloud of each pair.
        second: [S] index of the second cloud.
        epsilon: strength of the entropic term.
        iterations: Sinkhorn iterations.
        relative: as in :func:`entropic_ot`.

    Returns:
        [*, S] values; not negative once the iterations have converged.

    """
    # index_select, because the backward of indexing by a tensor is several times slower on a CPU.
    x, y = (points.index_select(-3, clouds) for clouds in (first, second))
    x_mask, y_mask = (mask.index_select(-2, clouds) for clouds in (first, second))
    apart, strength = _EntropicOT.apply(x, y, x_mask, y_mask, epsilon, iterations, relative)
    own = _EntropicOT.apply(points, points, mask, mask, strength, iterations, False)[0]
    value: Tensor = apart - (own.index_select(-1, first) + own.index_select(-1, second)) / 2
    return value


class _EntropicOT(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        y: Tensor,
        x_mask: Tensor,
        y_mask: Tensor,
        epsilon: float | Tensor,
        iterations: int,
        relative: bool,
    ) -> tuple[Tensor, Tensor]:
        """Return the values and the absolute epsilon, which has no gradient."""
        x, x_mean, x_rest = centred(x, x_mask)
        y, y_mean, y_rest = centred(y, y_mask)
        shift, rest = x_mean - y_mean, x_rest - y_rest
        moved = (shift * (shift + 2 * rest)).sum(-1)
        cost = torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist").square_()
        cost.masked_fill_(~(x_mask.unsqueeze(-1) & y_mask.unsqueeze(-2)), 0)
        unit = _mean_cost(cost, moved, x_mask, y_mask) if relative else cost.new_ones(())
        epsilon = epsilon * unit
        value, plan = solve(cost, x_mask, y_mask, epsilon=epsilon, iterations=iterations)
        ctx.save_for_backward(x, y, x_mask, y_mask, plan, shift + rest)
        ctx.mark_non_differentiable(epsilon)
        return value + moved, epsilon

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        x, y, x_mask, y_mask, plan, shift = ctx.saved_tensors
        plan = plan * (2 * grad[..., None, None])
        shift = shift * (2 * grad[..., None])
        x_grad = y_grad = None
        if ctx.needs_input_grad[0]:
            x_grad = _pull(x, y, x_mask, plan, shift)
        if ctx.needs_input_grad[1]:
            y_grad = _pull(y, x, y_mask, plan.mT, -shift)
        return x_grad, y_grad, None, None, None, None, None


def _mean_cost(cost: Tensor, moved: Tensor, x_mask: Tensor, y_mask: Tensor) -> Tensor:
    """Return the mean over all pairs of points of all pairs of clouds, including the translation."""
    pairs = (counts(x_mask) * counts(y_mask)).to(cost.dtype)
    return (cost.sum() + (moved * pairs).sum()) / pairs.sum()


def _pull(x: Tensor, y: Tensor, x_mask: Tensor, plan: Tensor, shift: Tensor) -> Tensor:
    """Return the gradient at x: of the centred problem, minus its mean (x was centred), plus the translation's."""
    plan = _rows(plan.contiguous())
    pull = (plan.sum(-1, keepdim=True) * _rows(x)).baddbmm_(plan, _rows(y), alpha=-1)
    # Both corrections at once: one vector per cloud times the points' weights, which are 0 at the padding.
    common = _rows(shift.unsqueeze(-2)) - pull.sum(-2, keepdim=True)
    return pull.baddbmm_(_rows(averaging(x_mask, x.dtype)).mT, common).view(x.shape)


def solve(cost: Tensor, x_mask: Tensor, y_mask: Tensor, *, epsilon: Tensor, iterations: int) -> tuple[Tensor, Tensor]:
    """Run Sinkhorn on cost matrices [*, N, P]; return the dual values [*] and the plans [*, N, P].

    An iteration is two products of vectors with ``kernel = exp(score + potentials)``. The vectors hold what has changed
    since the kernel was computed, so that no number leaves the range of its type (Schmitzer, 2019; ``_rounds``).
    Inside, the pairs of clouds come last ([N, P, L]): sums over a few points then run over long rows.
    """
    shape = cost.shape
    # If all costs are zero, so is a relative epsilon; any positive number then gives the same plan.
    epsilon = epsilon.clamp_min(torch.finfo(cost.dtype).tiny)
    (in_x, count_x), (in_y, count_y) = _points(x_mask, cost.dtype), _points(y_mask, cost.dtype)
    log_x, log_y = in_x - count_x.log(), in_y - count_y.log()
    scores = _rows(cost / -epsilon).permute(1, 2, 0).contiguous()
    potential_x = -torch.logsumexp(scores + log_y, 1)
    potential_y = -torch.logsumexp(scores + (potential_x + log_x).unsqueeze(1), 0)
    kernel, product = torch.empty_like(scores), torch.empty_like(scores)
    rounds, largest = _rounds(max(*shape[-2:], 2), cost.dtype)
    for done in range(1, iterations, rounds):
        torch.add(scores, (potential_x + in_x).unsqueeze(1), out=kernel).add_(potential_y + in_y)
        kernel.clamp_max_(math.log(max(*shape[-2:], 1))).exp_()
        factor_y = torch.ones_like(potential_y)
        for _ in range(min(rounds, iterations - done)):
            # Divided by the number of points, instead of sums of quotients: exactly 1 if all points are equal.
            factor_x = (count_y / torch.mul(kernel, factor_y, out=product).sum(1)).clamp_(1 / largest, largest)
            torch.mul(kernel, factor_x.unsqueeze(1), out=product)
            factor_y = (count_x / product.sum(0)).clamp_(1 / largest, largest)
        potential_x, potential_y = potential_x + factor_x.log_(), potential_y + factor_y.log_()
    # A softmax over the columns: their mass is exact even if cost / epsilon exceeds the precision of the scores.
    plan = torch.softmax(scores + (potential_x + log_x).unsqueeze(1), 0) * log_y.exp()
    # The last update made the column sums exact, so the mass term of the dual is zero and two dot products remain.
    value = (log_x.exp() * potential_x).sum(0) + (log_y.exp() * potential_y).sum(0)
    return (epsilon * value).reshape(shape[:-2]), plan.permute(2, 0, 1).contiguous().view(shape)


def _rounds(points: int, dtype: torch.dtype) -> tuple[int, float]:
    """Return for how many iterations a kernel serves, and the largest factor by which they change a potential.

    After an update of the columns, every row sum of the scaled kernel is between 1 / points and points, and likewise
    with rows and columns exchanged, because no entry of the one just normalised exceeds the number of points. So r
    iterations change exp(potential) by at most points^r, and an entry of the kernel that was too small for the type
    grows by at most points^2r. With this r it then still is below a rounding of the sums. The kernel and the factors
    leave these bounds only if the scores themselves exceed their precision; they are clamped, so that all is finite.
    """
    numbers = torch.finfo(dtype)
    largest = math.sqrt(numbers.eps / numbers.tiny)
    return max(int(math.log(largest) / math.log(points)), 1), largest


def _rows(matrices: Tensor) -> Tensor:
    """Flatten the leading dimensions: [*, N, P] -> [L, N, P]."""
    return matrices.reshape(-1, *matrices.shape[-2:])


def _points(mask: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return 0 where a cloud has a point, else -inf, and its number of points: mask [*, N] -> [N, L], [L]."""
    rows = mask.reshape(-1, mask.shape[-1]).to(dtype)
    return rows.log().T.contiguous(), rows.sum(-1)
