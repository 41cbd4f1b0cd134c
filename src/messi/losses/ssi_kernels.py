"""The subset-conditioned invariance loss on a GPU, value and gradient together; ``ssi`` says what is computed.

How many slots a batch has decides how much the kernels do, but not how often or how widely they are launched, and the
host never waits for a number: a step with this loss can be captured in a CUDA graph and replayed on other batches.
Every sum has a fixed order, so the same batch gives the same bits. Places in memory are counted in 32 bits: M B B and
M B R are below two billion.
Legend: M experts, B examples, R features.
"""

from typing import Any

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from messi.losses import large_transport_kernels, pull_kernels, transport_kernels
from messi.losses.slot_kernels import STEP, Cells, Layout, describe, find

_SIDES = {16: 1, 32: 4, 64: 8}
"""Tiles in which a slot is solved in registers, and the warps that share one."""
_SMALLEST, _LARGEST = min(_SIDES), max(_SIDES)
_PROGRAMS = 512
"""Programs that share the slots of a batch; about what a large GPU runs at once."""


def ssi_loss(
    features: Tensor,
    routing: Tensor,
    labels: Tensor,
    domains: Tensor,
    *,
    discrepancy: str,
    sharpness: float,
    reduction: str,
    epsilon: float,
    epsilon_scale: str,
    iterations: int,
    bandwidths: tuple[float, ...],
) -> Tensor:
    """Return the loss of ``ssi.ssi_loss`` in float32; there is at least one feature, and one round."""
    points, needed = features.detach().contiguous(), features.requires_grad and torch.is_grad_enabled()
    transport = discrepancy == "ot"
    with torch.cuda.device_of(features):  # Triton launches on the current device, whichever the tensors are on
        layout = find(labels, domains)
        cells = describe(points, routing.detach(), layout, sharpness=sharpness, centre=transport)
        if transport:
            relative = epsilon_scale == "relative"
            sums, *matrices = _transport(layout, cells, epsilon, iterations, relative=relative, gradient=needed)
        else:
            sums, *matrices = _mmd(layout, cells, bandwidths, gradient=needed)
        value = _add_up(sums, layout, experts=len(points), mean=reduction == "mean")
        if needed:
            gradient = _pull(points, layout, *matrices, mean=reduction == "mean")
            value = _WithGradient.apply(features, value, gradient)
    return value


class _WithGradient(torch.autograd.Function):
    """A scalar whose gradient was found along with it, so that the backward pass only has to scale it."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, value: Tensor, gradient: Tensor) -> Tensor:
        ctx.save_for_backward(gradient)
        ctx.dtype = features.dtype
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return (grad * gradient).to(ctx.dtype), None, None


def _transport(
    layout: Layout, cells: Cells, epsilon: float, iterations: int, *, relative: bool, gradient: bool
) -> tuple[Tensor, ...]:
    """Return what adds up to entropic OT over all slots, the weights between places and the defects, both [M, B, B]."""
    experts, lines, batch = cells.points.shape
    programs = min(_PROGRAMS, triton.next_power_of_2(experts * batch))
    # In a slot that has to be solved, both cells have at least two points.
    sides = [side for side in _SIDES if side == _SMALLEST or side // 2 < batch - 2]
    large = batch - 2 > _LARGEST
    costs, *sums = parts = _floats(layout, 2 + len(sides) + large, programs)
    weights = _floats(layout, experts if gradient or large else 0, batch, batch)
    defects = _floats(layout, experts if gradient else 0, batch, batch)
    slots = (layout.first, layout.second, layout.size, layout.number, layout.counts, cells.gate)
    scratch, options = (weights, defects), {"GRADIENT": gradient, "PROGRAMS": programs}
    transport_kernels.compare_means[programs,](
        *slots, cells.spread, cells.mean, costs, sums[0], *scratch, experts, batch, cells.mean.shape[-1],
        cells.spread.shape[-1], COLUMNS=256, **options,
    )  # fmt: skip
    options |= {"RELATIVE": relative, "STEP": STEP}
    problem = (epsilon, iterations, experts, batch, lines)
    for side, mine in zip(sides, sums[1:], strict=False):
        transport_kernels.solve[programs,](
            *slots, cells.points, costs, mine, *scratch, *problem,
            ABOVE=side // 2 if side > _SMALLEST else 0, TILE=side, num_warps=_SIDES[side], **options,
        )  # fmt: skip
    if large:
        potentials = _floats(layout, programs, 2, batch)
        large_transport_kernels.solve_large[programs,](
            *slots, cells.points, costs, sums[-1], *scratch, potentials, *problem,
            TILE=_LARGEST, num_warps=_SIDES[_LARGEST], **options,
        )  # fmt: skip
    return parts[1:], weights, defects


def _mmd(layout: Layout, cells: Cells, bandwidths: tuple[float, ...], *, gradient: bool) -> tuple[Tensor, ...]:
    """Return what adds up to squared MMD over all slots, and the weights between places [M, B, B]."""
    experts, lines, batch = cells.points.shape
    tiles = triton.cdiv(batch, _SMALLEST)
    sums = _floats(layout, experts, tiles, tiles)
    weights = _floats(layout, experts if gradient else 0, batch, batch)
    pull_kernels.compare_kernels[experts, tiles, tiles](
        layout.cell, layout.size, layout.start, layout.end, cells.gate, cells.points, sums, weights, batch, lines,
        BANDWIDTHS=bandwidths, GRADIENT=gradient, STEP=STEP, TILE=_SMALLEST, num_warps=_SIDES[_SMALLEST],
    )  # fmt: skip
    return sums, weights


def _add_up(parts: Tensor, layout: Layout, *, experts: int, mean: bool) -> Tensor:
    """Return the sum of all parts, for the mean over the number of slots, as a scalar."""
    result = _floats(layout)
    pull_kernels.add_up[1,](parts, layout.counts, result, parts.numel(), experts, MEAN=mean, BLOCK=1024)
    return result


def _pull(points: Tensor, layout: Layout, weights: Tensor, defects: Tensor | None = None, *, mean: bool) -> Tensor:
    """Return the gradient [M, B, R] that the weights between sorted places give, and their defects if there are any."""
    experts, batch, width = points.shape
    result = _floats(layout, experts, batch, width)
    pull_kernels.pull[experts, triton.cdiv(batch, 16), triton.cdiv(width, 32)](
        points, layout.order, layout.cell, layout.size, layout.start, layout.end, layout.later, layout.counts,
        weights, weights if defects is None else defects, result, experts, batch, width,
        DEFECTS=defects is not None, MEAN=mean, TILE=16, COLUMNS=32,
    )  # fmt: skip
    return result


def _floats(layout: Layout, *shape: int) -> Tensor:
    return torch.empty(shape, dtype=torch.float32, device=layout.order.device)
