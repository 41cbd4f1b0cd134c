"""Frozen BatchNorm, the sum with a shortcut and ReLU in one pass over memory, forward and backward.

torch makes one pass for each, and reads everything again for the gradients. Here maps are a matrix with a row for each
position of each image and a column for each channel, which is their layout in memory in channels-last order. They keep
the precision of the convolutions; arithmetic and sums are float32. All sums have a fixed order, so the same input gives
the same bits. Legend: B images, C channels, H x W positions, N = B H W rows.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from messi.models.fused.vit_kernels import sum_parts

_TILE = 2048
"""Numbers that a program processes at once: two vectors of eight for each of its threads."""
_COLUMNS = 256
"""Maximum number of channels in a tile: 512 bytes of a row in half precision."""
_PROGRAMS = 660
"""Maximum number of programs of a backward pass: five per multiprocessor of an H200, as many as its registers allow."""


def frozen_norm(
    maps: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, variance: Tensor,
    *, epsilon: float, shortcut: Tensor | None, relu: bool,
) -> Tensor:  # fmt: skip
    """Return ``relu(norm(maps) + shortcut)``, [B, C, H, W], with given statistics [C]; shortcut and ReLU are optional.

    The result has the precision of the maps and is channels last. Mean and variance are constants for the gradient.
    """
    result: Tensor = _FrozenNorm.apply(maps, shortcut, weight, bias, mean, variance, epsilon, relu)
    return result


class _FrozenNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, maps: Tensor, shortcut: Tensor | None, weight: Tensor, bias: Tensor, mean: Tensor, variance: Tensor,
        epsilon: float, relu: bool,
    ) -> Tensor:  # fmt: skip
        maps = maps.contiguous(memory_format=torch.channels_last)
        if shortcut is not None:
            shortcut = shortcut.contiguous(memory_format=torch.channels_last)
        result, (rows, channels) = torch.empty_like(maps), _matrix(maps)
        shape, (down, across) = _tiles(rows, channels)
        with torch.cuda.device_of(maps):
            _forward[(down * across,)](
                maps, shortcut, weight, bias, mean, variance, result, epsilon, rows, channels, RELU=relu, **shape
            )
        # Without a shortcut, the maps determine where ReLU passes the gradient; they are read anyway.
        shown = result if relu and shortcut is not None else None
        ctx.save_for_backward(maps, shown, weight, bias, mean, variance)
        ctx.epsilon, ctx.relu, ctx.has_shortcut = epsilon, relu, shortcut is not None
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor | None, ...]:
        maps, shown, *constants = ctx.saved_tensors
        above = above.contiguous(memory_format=torch.channels_last)
        grad, (rows, channels) = torch.empty_like(maps), _matrix(maps)
        masked = None if shown is None else torch.empty_like(maps)
        shape, (down, across) = _tiles(rows, channels)
        down = min(down, max(_PROGRAMS // across, 1))
        parts = torch.empty(2, down, channels, device=maps.device)
        with torch.cuda.device_of(maps):
            _backward[(down * across,)](
                above, maps, shown, *constants, grad, masked, parts, ctx.epsilon, rows, channels, RELU=ctx.relu, **shape
            )
        weight_grad, bias_grad = sum_parts(parts)
        shortcut_grad = above if ctx.has_shortcut and not ctx.relu else masked
        return grad, shortcut_grad, weight_grad, bias_grad, None, None, None, None


def _matrix(maps: Tensor) -> tuple[int, int]:
    """Return the numbers of rows and columns of maps as a matrix."""
    batch, channels, height, width = maps.shape
    return batch * height * width, channels


def _tiles(rows: int, channels: int) -> tuple[dict[str, int], tuple[int, int]]:
    """Return the compile-time constants of the kernels, and the numbers of tiles down and across."""
    columns = min(triton.next_power_of_2(channels), _COLUMNS)
    shape = {"ROWS": _TILE // columns, "COLUMNS": columns, "num_warps": 4}
    return shape, (triton.cdiv(rows, shape["ROWS"]), triton.cdiv(channels, columns))


@triton.jit
def _forward(
    maps, shortcut, weight, bias, mean, variance, result, epsilon, rows, channels,
    RELU: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Normalise one tile."""
    turn, column = _which(channels, COLUMNS)
    centre, scale = _statistics(mean, variance, epsilon, column, channels)
    factor, offset = _read(weight + column, column < channels), _read(bias + column, column < channels)
    place, inside = _places(turn * ROWS, rows, channels, column, ROWS)
    value = (_read(maps + place, inside) - centre) * scale * factor + offset
    if shortcut is not None:
        value += _read(shortcut + place, inside)
    if RELU:
        value = tl.where(value < 0, 0.0, value)  # as in torch: NaN stays NaN
    tl.store(result + place, value, mask=inside)


@triton.jit
def _backward(
    above, maps, shown, weight, bias, mean, variance, grad, masked, parts, epsilon, rows, channels,
    RELU: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of every n-th tile of some columns, and their part of the gradients of weight and bias."""
    turn, column = _which(channels, COLUMNS)
    turns = tl.num_programs(0) // tl.cdiv(channels, COLUMNS)
    within = column < channels
    centre, scale = _statistics(mean, variance, epsilon, column, channels)
    factor, offset = _read(weight + column, within), _read(bias + column, within)
    # Sums over rows stay distributed over the tile until the end: a sum inside the loop would synchronise all warps.
    weight_sum = tl.zeros([ROWS, COLUMNS], tl.float32)
    bias_sum = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(turn * ROWS, rows, turns * ROWS):
        place, inside = _places(start, rows, channels, column, ROWS)
        given = _read(above + place, inside)  # zero outside
        unit = (_read(maps + place, inside) - centre) * scale
        if shown is not None:
            given = tl.where(_read(shown + place, inside) <= 0, 0.0, given)
            tl.store(masked + place, given, mask=inside)
        elif RELU:
            given = tl.where(unit * factor + offset <= 0, 0.0, given)
        weight_sum += given * unit
        bias_sum += given
        tl.store(grad + place, given * factor * scale, mask=inside)
    parts += turn * channels + column
    tl.store(parts, tl.sum(weight_sum, 0)[None, :], mask=within)
    tl.store(parts + turns * channels, tl.sum(bias_sum, 0)[None, :], mask=within)


@triton.jit
def _which(channels, COLUMNS: tl.constexpr):
    """Return the turn of a program among those with the same columns, and these columns, [1, COLUMNS]."""
    across = tl.cdiv(channels, COLUMNS)
    column = tl.program_id(0) % across * COLUMNS + tl.arange(0, COLUMNS)
    return tl.program_id(0) // across, column[None, :]


@triton.jit
def _places(start, rows, channels, column, ROWS: tl.constexpr):
    """Return the offsets of the numbers of a tile, and which of them exist."""
    row = (start + tl.arange(0, ROWS))[:, None]
    return row.to(tl.int64) * channels + column, (row < rows) & (column < channels)


@triton.jit
def _statistics(mean, variance, epsilon, column, channels):
    """Return means and 1 / deviations."""
    within = column < channels
    return _read(mean + column, within), 1 / tl.sqrt(_read(variance + column, within) + epsilon)


@triton.jit
def _read(source, inside):
    return tl.load(source, mask=inside, other=0.0).to(tl.float32)
