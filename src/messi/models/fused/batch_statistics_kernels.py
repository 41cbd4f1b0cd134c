"""Mean and variance of every channel of a batch, in one pass over memory.

A difference of E[x²] and E[x]² would lose a variance that is small beside the mean. Each part sums differences from its
first number instead: that is at most sqrt(n) deviations from the mean of its n numbers, so the relative error of their
variance is at most n times that of float32, and n is about a thousand. Parts are merged by the differences of their
means (Chan). The order of all sums is fixed, so the same input gives the same bits.
Legend: B images, C channels, H x W positions, N = B H W rows.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from messi.models.fused.map_tile_kernels import matrix, places, read, tiles, turns_of, which

_PROGRAMS = 1056
"""Maximum number of programs: eight per multiprocessor of an H200, as many as their registers allow."""


def batch_statistics(maps: Tensor, layer: nn.BatchNorm2d) -> Tensor:
    """Return means and biased variances, [2, C], of channels-last maps, and update the layer's running ones.

    The update is torch's, but its counter stays on the device without momentum, too.
    """
    rows, channels = matrix(maps)
    if rows == 1:  # as torch, in its words: one number has no variance
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {maps.shape}")
    shape, (down, across) = tiles(rows, channels)
    turns = turns_of(down, max(_PROGRAMS // across, 1))
    parts = torch.empty(2, turns, channels, device=maps.device)
    result = torch.empty(2, channels, device=maps.device)
    with torch.cuda.device_of(maps):
        _partial[(turns * across,)](maps, parts, layer.num_batches_tracked, rows, channels, **shape)
        _merge[(triton.cdiv(channels, 8),)](
            parts, result, layer.running_mean, layer.running_var, layer.num_batches_tracked, layer.momentum,
            rows, channels, turns, TILE=shape["ROWS"], PARTS=256, COLUMNS=8, num_warps=8,
        )  # fmt: skip
    return result


@triton.jit
def _partial(maps, parts, counter, rows, channels, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Compute means and summed squares around them of every n-th tile of some columns, and count the batch."""
    turn, column = which(channels, COLUMNS)
    step = tl.num_programs(0) // tl.cdiv(channels, COLUMNS) * ROWS
    if tl.program_id(0) == 0:
        tl.store(counter, tl.load(counter) + 1)
    origin = read(maps + turn.to(tl.int64) * ROWS * channels + column, column < channels)
    # Sums over rows stay distributed over the tile until the end: a sum inside the loop would synchronise all warps.
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    squares = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(turn * ROWS, rows, step):
        place, inside = places(start, rows, channels, column, ROWS)
        off = tl.where(inside, read(maps + place, inside) - origin, 0.0)
        total += off
        squares += off * off
    summed = tl.sum(total, 0)[None, :]
    off = summed / _rows_of(turn, step, rows, ROWS)
    parts += turn * channels + column
    tl.store(parts, origin + off, mask=column < channels)
    tl.store(parts + step // ROWS * channels, tl.sum(squares, 0)[None, :] - summed * off, mask=column < channels)


@triton.jit
def _merge(
    parts, result, running_mean, running_variance, counter, momentum, rows, channels, turns,
    TILE: tl.constexpr, PARTS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Merge the parts of some columns, whose tiles had ``TILE`` rows, and update the running statistics."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    within = column < channels
    step = turns * TILE
    origin = read(parts + column, within)  # near all other means
    total = tl.zeros([PARTS, COLUMNS], tl.float32)
    squares = tl.zeros([PARTS, COLUMNS], tl.float32)
    for start in range(0, turns, PARTS):
        part = (start + tl.arange(0, PARTS))[:, None]
        inside = (part < turns) & within
        number = _rows_of(part, step, rows, TILE)
        place = parts + part * channels + column
        off = tl.where(inside, read(place, inside) - origin, 0.0)
        total += off * number
        squares += read(place + turns * channels, inside) + off * off * number
    off = tl.sum(total, 0)[None, :] / rows
    mean = origin + off
    summed = tl.sum(squares, 0)[None, :] - off * off * rows
    tl.store(result + column, mean, mask=within)
    tl.store(result + channels + column, summed / rows, mask=within)
    weight = 1.0 / tl.load(counter).to(tl.float32) if momentum is None else momentum
    _move(running_mean + column, mean, weight, within)
    _move(running_variance + column, summed / (rows - 1), weight, within)


@triton.jit
def _rows_of(turn, step, rows, ROWS: tl.constexpr):
    """Return how many rows are in every n-th tile, from that of a turn on; n tiles have ``step`` rows."""
    rest = tl.minimum(tl.maximum(rows % step - turn * ROWS, 0), ROWS)
    return (rows // step * ROWS + rest).to(tl.float32)


@triton.jit
def _move(running, new, weight, within):
    """Move running statistics towards those of the batch."""
    tl.store(running, (1 - weight) * read(running, within) + weight * new, mask=within)
