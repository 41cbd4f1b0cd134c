"""Entropic optimal transport between many pairs of small point clouds at once.

    W_eps(P, Q) = min_g <g, C> + eps KL(g | P x Q),    C = squared Euclidean distance, uniform marginals

Written here because no library solves ragged batches (POT and geomloss need equal sizes). Three facts make it
short and fast:

- Envelope theorem: the gradient of the value with respect to the cost is the optimal plan, so no iteration is
  stored or differentiated.
- ``W_eps(P, Q) = W_eps(P - mean P, Q - mean Q) + |mean P - mean Q|^2``: solving the centred problem makes the value
  of a translated cloud exact for every number of iterations, and keeps float32 accurate far from the origin.
- A cloud of one point has only one plan; the iteration finds it in its first round.

Legend: ``*`` leading dimensions, N and P padded numbers of points, R features.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from messi.discrepancy.clouds import centred, counts


def entropic_ot(
    x: Tensor, y: Tensor, x_mask: Tensor, y_mask: Tensor, *, epsilon: Tensor | float, iterations: int
) -> Tensor:
    """Return W_eps of each pair of clouds.

    Args:
        x: [*, N, R] points of the first clouds, float32 or float64.
        y: [*, P, R] points of the second clouds.
        x_mask: [*, N] True where x holds a point; every cloud has at least one.
        y_mask: [*, P] the same for y.
        epsilon: strength of the entropic term, in units of the cost.
        iterations: rounds of Sinkhorn; a round updates both potentials.

    Returns:
        [*] values of the dual problem, a lower bound that is reached as ``iterations`` grows.

    """
    epsilon = torch.as_tensor(epsilon, dtype=x.dtype, device=x.device).detach()
    value: Tensor = _EntropicOT.apply(x, y, x_mask, y_mask, epsilon, iterations)
    return value


class _EntropicOT(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, y: Tensor, x_mask: Tensor, y_mask: Tensor, epsilon: Tensor, iterations: int
    ) -> Tensor:
        x_centred, x_mean = centred(x, x_mask)
        y_centred, y_mean = centred(y, y_mask)
        cost = torch.cdist(x_centred, y_centred, compute_mode="donot_use_mm_for_euclid_dist").square_()
        value, plan = solve(cost, x_mask, y_mask, epsilon=epsilon, iterations=iterations)
        shift = x_mean - y_mean
        ctx.save_for_backward(x_centred, y_centred, x_mask, y_mask, plan, shift)
        return value + shift.square().sum(-1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, y, x_mask, y_mask, plan, shift = ctx.saved_tensors
        plan = plan * grad[..., None, None]
        shift = shift * grad[..., None]
        x_grad = y_grad = None
        if ctx.needs_input_grad[0]:
            x_grad = 2 * _pull(x, y, x_mask, plan, shift)
        if ctx.needs_input_grad[1]:
            y_grad = 2 * _pull(y, x, y_mask, plan.mT, -shift)
        return x_grad, y_grad, None, None, None, None


def _pull(x: Tensor, y: Tensor, x_mask: Tensor, plan: Tensor, shift: Tensor) -> Tensor:
    """Half the gradient at x: the centred plan's pull, less its mean (x was centred), plus the shift's."""
    deviation, _ = centred(plan.sum(-1, keepdim=True) * x - plan @ y, x_mask)
    return deviation + (x_mask / counts(x_mask).unsqueeze(-1)).unsqueeze(-1) * shift.unsqueeze(-2)


def solve(cost: Tensor, x_mask: Tensor, y_mask: Tensor, *, epsilon: Tensor, iterations: int) -> tuple[Tensor, Tensor]:
    """Run log-domain Sinkhorn on cost matrices [*, N, P]; return the dual values [*] and the plans [*, N, P]."""
    # A cost of zero everywhere makes a relative epsilon zero; any positive number then gives the same plan.
    epsilon = epsilon.clamp_min(torch.finfo(cost.dtype).tiny)
    log_x, log_y = _log_uniform(x_mask), _log_uniform(y_mask)
    scores = cost / -epsilon
    by_row = scores + log_y.unsqueeze(-2)
    by_column = (scores + log_x.unsqueeze(-1)).mT.contiguous()
    potential_x = torch.zeros_like(log_x)
    potential_y = torch.zeros_like(log_y)
    for _ in range(iterations):
        potential_x = -torch.logsumexp(by_row + potential_y.unsqueeze(-2), -1)
        potential_y = -torch.logsumexp(by_column + potential_x.unsqueeze(-2), -1)
    log_plan = scores + (potential_x + log_x).unsqueeze(-1) + (potential_y + log_y).unsqueeze(-2)
    # The last update made the column sums exact, so the dual's mass term is zero and two dot products remain.
    value = (log_x.exp() * potential_x).sum(-1) + (log_y.exp() * potential_y).sum(-1)
    return epsilon * value, log_plan.exp()


def _log_uniform(mask: Tensor) -> Tensor:
    log_weight = -torch.log(counts(mask)).unsqueeze(-1).expand(mask.shape)
    return torch.where(mask, log_weight, -torch.inf)
