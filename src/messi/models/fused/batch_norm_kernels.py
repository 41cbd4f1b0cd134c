"""BatchNorm, the sum with a shortcut and ReLU in one pass over memory, forward and backward.

torch makes one pass for each, and reads everything again for the gradients. If BatchNorm uses the statistics of the
batch, there is one pass more in each direction: before the statistics are known, and before the sums are through which
they pass on the gradient. Maps keep the precision of the convolutions; arithmetic and sums are float32. All sums have a
fixed order, so the same input gives the same bits. Legend: B images, C channels, H x W positions, N = B H W rows.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from messi.models.fused.batch_statistics_kernels import batch_statistics
from messi.models.fused.map_tile_kernels import matrix, places, read, tiles, turns_of, which
from messi.models.fused.vit_kernels import sum_parts

_PROGRAMS = 660
"""Maximum number of programs of a backward pass: five per multiprocessor of an H200, as many as its registers allow."""


def frozen_norm(
    maps: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, variance: Tensor,
    *, epsilon: float, shortcut: Tensor | None, relu: bool,
) -> Tensor:  # fmt: skip
    """Return ``relu(norm(maps) + shortcut)``, [B, C, H, W], with given statistics [C]; shortcut and ReLU are optional.

    The result has the precision of the maps and is channels last. Mean and variance are constants for the gradient.
    """
    result: Tensor = _Norm.apply(maps, shortcut, weight, bias, mean, variance, epsilon, relu, False)
    return result


def batch_norm(maps: Tensor, layer: nn.BatchNorm2d, *, shortcut: Tensor | None, relu: bool) -> Tensor:
    """As :func:`frozen_norm`, with the statistics of the batch, by which a layer in training moves its running ones."""
    maps = maps.contiguous(memory_format=torch.channels_last)
    mean, variance = batch_statistics(maps, layer)
    result: Tensor = _Norm.apply(maps, shortcut, layer.weight, layer.bias, mean, variance, layer.eps, relu, True)
    return result


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, maps: Tensor, shortcut: Tensor | None, weight: Tensor, bias: Tensor, mean: Tensor, variance: Tensor,
        epsilon: float, relu: bool, of_batch: bool,
    ) -> Tensor:  # fmt: skip
        maps = maps.contiguous(memory_format=torch.channels_last)
        if shortcut is not None:
            shortcut = shortcut.contiguous(memory_format=torch.channels_last)
        result, (rows, channels) = torch.empty_like(maps), matrix(maps)
        shape, (down, across) = tiles(rows, channels)
        with torch.cuda.device_of(maps):
            _forward[(down * across,)](
                maps, shortcut, weight, bias, mean, variance, result, epsilon, rows, channels, RELU=relu, **shape
            )
        # Without a shortcut, the maps determine where ReLU passes the gradient; they are read anyway.
        shown = result if relu and shortcut is not None else None
        ctx.save_for_backward(maps, shown, weight, bias, mean, variance)
        ctx.epsilon, ctx.relu, ctx.has_shortcut, ctx.of_batch = epsilon, relu, shortcut is not None, of_batch
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor | None, ...]:
        maps, shown, *constants = ctx.saved_tensors
        above = above.contiguous(memory_format=torch.channels_last)
        grad, (rows, channels) = torch.empty_like(maps), matrix(maps)
        masked = None if shown is None else torch.empty_like(maps)
        shape, (down, across) = tiles(rows, channels)
        turns = turns_of(down, max(_PROGRAMS // across, 1))
        parts = torch.empty(2, turns, channels, device=maps.device)
        with torch.cuda.device_of(maps):
            _backward[(turns * across,)](
                above, maps, shown, *constants, None if ctx.of_batch else grad, masked, parts, ctx.epsilon,
                rows, channels, RELU=ctx.relu, **shape,
            )  # fmt: skip
            sums = sum_parts(parts)
            if ctx.of_batch:
                _batch_backward[(down * across,)](
                    above if masked is None else masked, maps, *constants, sums, grad, ctx.epsilon,
                    rows, channels, RELU=ctx.relu and masked is None, **shape,
                )  # fmt: skip
        shortcut_grad = above if ctx.has_shortcut and not ctx.relu else masked
        return grad, shortcut_grad, *sums, None, None, None, None, None


@triton.jit
def _forward(
    maps, shortcut, weight, bias, mean, variance, result, epsilon, rows, channels,
    RELU: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Normalise one tile."""
    turn, column = which(channels, COLUMNS)
    centre, scale = _statistics(mean, variance, epsilon, column, channels)
    factor, offset = read(weight + column, column < channels), read(bias + column, column < channels)
    place, inside = _from_the_end(turn, rows, channels, column, ROWS)
    value = (read(maps + place, inside) - centre) * scale * factor + offset
    if shortcut is not None:
        value += read(shortcut + place, inside)
    if RELU:
        value = tl.where(value < 0, 0.0, value)  # as in torch: NaN stays NaN
    tl.store(result + place, value, mask=inside)


@triton.jit
def _backward(
    above, maps, shown, weight, bias, mean, variance, grad, masked, parts, epsilon, rows, channels,
    RELU: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of every n-th tile of some columns, and their part of the gradients of weight and bias.

    Without ``grad``, those of the maps are left to :func:`_batch_backward`.
    """
    turn, column = which(channels, COLUMNS)
    turns = tl.num_programs(0) // tl.cdiv(channels, COLUMNS)
    within = column < channels
    centre, scale = _statistics(mean, variance, epsilon, column, channels)
    factor, offset = read(weight + column, within), read(bias + column, within)
    # Sums over rows stay distributed over the tile until the end: a sum inside the loop would synchronise all warps.
    weight_sum = tl.zeros([ROWS, COLUMNS], tl.float32)
    bias_sum = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(turn * ROWS, rows, turns * ROWS):
        place, inside = places(start, rows, channels, column, ROWS)
        given = read(above + place, inside)  # zero outside
        unit = (read(maps + place, inside) - centre) * scale
        if shown is not None:
            given = tl.where(read(shown + place, inside) <= 0, 0.0, given)
            tl.store(masked + place, given, mask=inside)
        elif RELU:
            given = tl.where(unit * factor + offset <= 0, 0.0, given)
        weight_sum += given * unit
        bias_sum += given
        if grad is not None:
            tl.store(grad + place, given * factor * scale, mask=inside)
    parts += turn * channels + column
    tl.store(parts, tl.sum(weight_sum, 0)[None, :], mask=within)
    tl.store(parts + turns * channels, tl.sum(bias_sum, 0)[None, :], mask=within)


@triton.jit
def _batch_backward(
    above, maps, weight, bias, mean, variance, sums, grad, epsilon, rows, channels,
    RELU: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of one tile, also through mean and variance: those pass on the gradients of all rows."""
    turn, column = which(channels, COLUMNS)
    within = column < channels
    centre, scale = _statistics(mean, variance, epsilon, column, channels)
    factor, offset = read(weight + column, within), read(bias + column, within)
    slope, level = read(sums + column, within) / rows, read(sums + channels + column, within) / rows
    place, inside = _from_the_end(turn, rows, channels, column, ROWS)
    given = read(above + place, inside)
    unit = (read(maps + place, inside) - centre) * scale
    if RELU:
        given = tl.where(unit * factor + offset <= 0, 0.0, given)
    tl.store(grad + place, (given - level - unit * slope) * factor * scale, mask=inside)


@triton.jit
def _from_the_end(turn, rows, channels, column, ROWS: tl.constexpr):
    """Return :func:`places` in reverse: what the kernel before read or wrote last is still in the cache."""
    return places((tl.cdiv(rows, ROWS) - 1 - turn) * ROWS, rows, channels, column, ROWS)


@triton.jit
def _statistics(mean, variance, epsilon, column, channels):
    """Return means and 1 / deviations."""
    within = column < channels
    return read(mean + column, within), 1 / tl.sqrt(read(variance + column, within) + epsilon)
