"""Max pooling of 3 x 3 positions with a stride of 2, as after the first layer of a ResNet, forward and backward.

torch stores the place of each maximum in eight bytes, and spreads the gradient over memory that it clears first. Here a
byte says which of the nine positions it is, and every gradient is the sum over the four windows that may contain it,
in a fixed order.
Legend: B images, C channels, H x W positions, P x Q windows.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from messi.models.fused.map_tile_kernels import matrix, places, read, tiles, which


def max_pool(maps: Tensor) -> Tensor:
    """Return the maxima of 3 x 3 windows with stride 2 and padding 1: [B, C, H, W] -> [B, C, P, Q], channels last."""
    result: Tensor = _MaxPool.apply(maps.contiguous(memory_format=torch.channels_last))
    return result


class _MaxPool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, maps: Tensor) -> Tensor:
        batch, channels, height, width = maps.shape
        shape = batch, channels, (height + 1) // 2, (width + 1) // 2
        result = torch.empty(shape, dtype=maps.dtype, device=maps.device, memory_format=torch.channels_last)
        chosen = torch.empty_like(result, dtype=torch.uint8)
        rows, _ = matrix(result)
        constants, (down, across) = tiles(rows, channels)
        with torch.cuda.device_of(maps):
            _forward[(down * across,)](maps, result, chosen, rows, channels, height, width, *shape[2:], **constants)
        ctx.save_for_backward(chosen)
        ctx.shape = maps.shape
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, above: Tensor) -> Tensor:
        (chosen,) = ctx.saved_tensors
        above = above.contiguous(memory_format=torch.channels_last)
        grad = torch.empty(ctx.shape, dtype=above.dtype, device=above.device, memory_format=torch.channels_last)
        rows, channels = matrix(grad)
        constants, (down, across) = tiles(rows, channels)
        with torch.cuda.device_of(above):
            _backward[(down * across,)](
                above, chosen, grad, rows, channels, *ctx.shape[2:], *above.shape[2:], **constants
            )
        return grad


@triton.jit
def _forward(
    maps, result, chosen, rows, channels, height, width, down, across, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    """Pool a tile of windows."""
    turn, column = which(channels, COLUMNS)
    place, inside = places(turn * ROWS, rows, channels, column, ROWS)
    window = (turn * ROWS + tl.arange(0, ROWS))[:, None]
    first = window // across % down * 2 - 1
    left = window % across * 2 - 1
    image = (window // (down * across)).to(tl.int64) * height
    top = tl.full([ROWS, COLUMNS], -float("inf"), tl.float32)
    index = tl.full([ROWS, COLUMNS], -1, tl.int32)
    for position in tl.static_range(9):
        row, line = first + position // 3, left + position % 3
        there = inside & ((row >= 0) & (row < height) & (line >= 0) & (line < width))
        value = tl.load(maps + ((image + row) * width + line) * channels + column, mask=there, other=-float("inf"))
        value = value.to(tl.float32)
        higher = (value > top) | (value != value)  # noqa: PLR0124 (NaN, which is the maximum as in torch)
        higher = there & (higher | (index < 0))
        top, index = tl.where(higher, value, top), tl.where(higher, position, index)
    tl.store(result + place, top, mask=inside)
    tl.store(chosen + place, index.to(tl.uint8), mask=inside)


@triton.jit
def _backward(
    above, chosen, grad, rows, channels, height, width, down, across, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    """Compute the gradient of a tile of positions."""
    turn, column = which(channels, COLUMNS)
    place, inside = places(turn * ROWS, rows, channels, column, ROWS)
    position = (turn * ROWS + tl.arange(0, ROWS))[:, None]
    row, line = position // width % height, position % width
    image = (position // (height * width)).to(tl.int64) * down
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for number in tl.static_range(4):
        # An odd row is in two windows, an even one only in the first of these.
        first, left = row // 2 + number // 2, line // 2 + number % 2
        of = (number // 2 <= row % 2) & (number % 2 <= line % 2) & (first < down) & (left < across)
        there = inside & of
        window = ((image + first) * across + left) * channels + column
        wanted = (row - first * 2 + 1) * 3 + line - left * 2 + 1
        index = tl.load(chosen + window, mask=there, other=255).to(tl.int32)
        total += tl.where(index == wanted, read(above + window, there), 0.0)
    tl.store(grad + place, total, mask=inside)
