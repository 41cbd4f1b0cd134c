"""The operations between the matrix products of a vision transformer, each in one pass over memory.

torch reads and writes the activations several times for a residual sum and its LayerNorm, sums bias gradients in
separate passes, and computes GELU with a slow erf; together these take longer than the matrix products.
Sums over rows consist of partial sums in a fixed order, so the same input gives the same bits.
Legend: N rows (tokens of all images), W width, P parts, each the sum over some of the rows, G groups of parts.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

_ROWS = 4
_WARPS = 1056
"""Total number of warps: eight per multiprocessor of an H200, for which this and the tiles were tuned."""
_TILE = 256


def patches(images: Tensor, size: tuple[int, int], dtype: torch.dtype) -> Tensor:
    """Cut images [B, C, S, T] into patches, one row each, after a row of zeros for the class token: [B, 1 + P, K]."""
    batch, channels, height, width = images.shape
    down, across = height // size[0], width // size[1]
    result = torch.empty(batch, 1 + down * across, channels * size[0] * size[1], dtype=dtype, device=images.device)
    length = result.shape[2]
    with torch.cuda.device_of(images):
        _patches[(1 + down * across, batch)](
            images.contiguous(), result, across, width, height * width, length,
            HEIGHT=size[0], WIDTH=size[1], BLOCK=triton.next_power_of_2(length),
        )  # fmt: skip
    return result


def add_norm(
    x: Tensor, branch: Tensor, bias: Tensor | None, norm: nn.LayerNorm, normed: Tensor
) -> tuple[Tensor, Tensor]:
    """Return x + branch + bias [N, W] and [2, N] means and 1 / deviations; write its LayerNorm into ``normed`` [N, W].

    x [N', W] is repeated when it has fewer rows than branch [N, W].
    """
    rows, width = branch.shape
    total, statistics = torch.empty(rows, width, device=x.device), torch.empty(2, rows, device=x.device)
    block = triton.next_power_of_2(width)
    with torch.cuda.device_of(x):
        _add_norm[(triton.cdiv(rows, _ROWS),)](
            x, branch, bias, norm.weight, norm.bias, total, normed, statistics, norm.eps, rows, len(x), width,
            HAS_BIAS=bias is not None, ROWS=_ROWS, BLOCK=block, num_warps=max(block // 128, 1),
        )  # fmt: skip
    return total, statistics


def norm_parts(rows: int, width: int) -> int:
    """Return the number of parts in which :func:`add_norm_backward` stores its sums over rows."""
    return int(min(max(_WARPS // _norm_warps(width), 1), triton.cdiv(rows, _ROWS)))


def add_norm_backward(
    total_grad: Tensor, normed_grad: Tensor, total: Tensor, statistics: Tensor, weight: Tensor, grad: Tensor,
    parts: Tensor,
) -> None:  # fmt: skip
    """Write the gradient of the sum into ``grad`` [N, W], and parts of weight, shift and bias gradients [P, 3, W]."""
    rows, width = total.shape
    with torch.cuda.device_of(total):
        _add_norm_backward[(len(parts),)](
            total_grad, normed_grad, total, statistics, weight, grad, parts, rows, width,
            ROWS=_ROWS, BLOCK=triton.next_power_of_2(width), num_warps=_norm_warps(width),
        )  # fmt: skip


def _norm_warps(width: int) -> int:
    return int(max(triton.next_power_of_2(width) // 256, 1))


def gelu(hidden: Tensor, result: Tensor) -> None:
    """Write the exact GELU of ``hidden`` into ``result``, both contiguous."""
    size, block = hidden.numel(), 2048
    with torch.cuda.device_of(hidden):
        _gelu[(triton.cdiv(size, block),)](hidden, result, size, BLOCK=block)


def gelu_parts(rows: int, width: int) -> int:
    """Return the number of parts in which :func:`gelu_backward` stores its sum over rows."""
    return int(min(max(_WARPS // triton.cdiv(width, _TILE), 1), triton.cdiv(rows, _ROWS)))


def gelu_backward(grad: Tensor, hidden: Tensor, parts: Tensor) -> None:
    """Replace ``hidden`` [N, W] by its gradient, and write parts [P, W] of the sum of that over the rows."""
    rows, width = hidden.shape
    with torch.cuda.device_of(hidden):
        _gelu_backward[(triton.cdiv(width, _TILE), len(parts))](
            grad, hidden, parts, rows, width, ROWS=_ROWS, BLOCK=_TILE, num_warps=8
        )


def sum_parts(parts: Tensor) -> Tensor:
    """Return the sums of [G, P, ...] over P; torch would take longer than the kernels that compute the parts."""
    groups, rows, width = *parts.shape[:2], parts[0, 0].numel()
    result = torch.empty(groups, *parts.shape[2:], device=parts.device)
    with torch.cuda.device_of(parts):
        _sum_parts[(triton.cdiv(width, 8), groups)](parts, result, rows, width, ROWS=128, BLOCK=8)
    return result


@triton.jit
def _patches(
    images, result, across, width, area, length, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    token, image = tl.program_id(0), tl.program_id(1).to(tl.int64)
    place = tl.arange(0, BLOCK)
    inside = place < tl.where(token > 0, length, 0)
    patch = token - 1
    channel, pixel = place // (HEIGHT * WIDTH), place % (HEIGHT * WIDTH)
    row, column = patch // across * HEIGHT + pixel // WIDTH, patch % across * WIDTH + pixel % WIDTH
    source = images + (image * (length // (HEIGHT * WIDTH)) + channel) * area + row * width + column
    target = result + (image * tl.num_programs(0) + token) * length + place
    tl.store(target, tl.load(source, mask=inside, other=0.0), mask=place < length)


@triton.jit
def _add_norm(
    x, branch, bias, weight, shift, total, normed, statistics, epsilon, rows, x_rows, width,
    HAS_BIAS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    within = column < width
    inside = (row < rows)[:, None] & within[None, :]
    place = row[:, None].to(tl.int64) * width + column[None, :]
    value = tl.load(x + (row % x_rows)[:, None].to(tl.int64) * width + column[None, :], mask=inside, other=0.0)
    value += tl.load(branch + place, mask=inside, other=0.0).to(tl.float32)
    if HAS_BIAS:
        value += tl.load(bias + column, mask=within, other=0.0)[None, :]
    tl.store(total + place, value, mask=inside)
    mean = tl.sum(value, 1) / width
    centred = tl.where(within[None, :], value - mean[:, None], 0.0)
    scale = 1 / tl.sqrt(tl.sum(centred * centred, 1) / width + epsilon)
    tl.store(statistics + row, mean, mask=row < rows)
    tl.store(statistics + rows + row, scale, mask=row < rows)
    factor = tl.load(weight + column, mask=within, other=0.0)
    offset = tl.load(shift + column, mask=within, other=0.0)
    tl.store(normed + place, centred * scale[:, None] * factor[None, :] + offset[None, :], mask=inside)


@triton.jit
def _add_norm_backward(
    total_grad, normed_grad, total, statistics, weight, grad, parts, rows, width,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    column = tl.arange(0, BLOCK)
    within = column < width
    factor = tl.load(weight + column, mask=within, other=0.0)
    # Sums over rows stay distributed over the tile until the end: a sum inside the loop would synchronise all warps.
    weight_sum = tl.zeros([ROWS, BLOCK], tl.float32)
    shift_sum = tl.zeros([ROWS, BLOCK], tl.float32)
    bias_sum = tl.zeros([ROWS, BLOCK], tl.float32)
    for start in range(tl.program_id(0) * ROWS, rows, tl.num_programs(0) * ROWS):
        row = start + tl.arange(0, ROWS)
        inside = (row < rows)[:, None] & within[None, :]
        place = row[:, None].to(tl.int64) * width + column[None, :]
        mean = tl.load(statistics + row, mask=row < rows, other=0.0)
        scale = tl.load(statistics + rows + row, mask=row < rows, other=0.0)
        unit = tl.load(total + place, mask=inside, other=0.0)
        unit = tl.where(inside, (unit - mean[:, None]) * scale[:, None], 0.0)
        above = tl.load(normed_grad + place, mask=inside, other=0.0).to(tl.float32)
        weight_sum += above * unit
        shift_sum += above
        above *= factor[None, :]
        along = tl.sum(above * unit, 1) / width
        level = tl.sum(above, 1) / width
        result = (above - level[:, None] - unit * along[:, None]) * scale[:, None]
        result += tl.load(total_grad + place, mask=inside, other=0.0).to(tl.float32)
        bias_sum += tl.where(inside, result, 0.0)
        tl.store(grad + place, result, mask=inside)
    partial = parts + 3 * tl.program_id(0) * width + column
    tl.store(partial, tl.sum(weight_sum, 0), mask=within)
    tl.store(partial + width, tl.sum(shift_sum, 0), mask=within)
    tl.store(partial + 2 * width, tl.sum(bias_sum, 0), mask=within)


@triton.jit
def _sum_parts(parts, result, rows, width, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    parts += tl.program_id(1).to(tl.int64) * rows * width
    total = tl.zeros([ROWS, BLOCK], tl.float32)
    for start in range(0, rows, ROWS):
        row = start + tl.arange(0, ROWS)
        inside = (row < rows)[:, None] & (column < width)[None, :]
        total += tl.load(parts + row[:, None] * width + column[None, :], mask=inside, other=0.0)
    tl.store(result + tl.program_id(1) * width + column, tl.sum(total, 0), mask=column < width)


@triton.jit
def _gelu(hidden, result, size, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(hidden + place, mask=place < size, other=0.0).to(tl.float32)
    below, _ = _normal(value)
    tl.store(result + place, value * below, mask=place < size)


@triton.jit
def _gelu_backward(grad, hidden, parts, rows, width, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    within = column < width
    total = tl.zeros([ROWS, BLOCK], tl.float32)
    for start in range(tl.program_id(1) * ROWS, rows, tl.num_programs(1) * ROWS):
        row = start + tl.arange(0, ROWS)
        inside = (row < rows)[:, None] & within[None, :]
        place = row[:, None].to(tl.int64) * width + column[None, :]
        value = tl.load(hidden + place, mask=inside, other=0.0).to(tl.float32)
        below, density = _normal(value)
        value = tl.load(grad + place, mask=inside, other=0.0).to(tl.float32) * (below + value * density)
        total += value
        tl.store(hidden + place, value, mask=inside)
    tl.store(parts + tl.program_id(1) * width + column, tl.sum(total, 0), mask=within)


@triton.jit
def _normal(value):
    """Return CDF and density of the standard normal distribution (Abramowitz and Stegun 7.1.26, accurate to 1.5e-7).

    Both share one exponential: with the erf of the library, GELU would be bound by arithmetic, not by memory.
    """
    bell = tl.exp(-0.5 * value * value)
    t = 1 / (1 + 0.2316418882663604 * tl.abs(value))
    series = t * (
        0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429)))
    )  # fmt: skip
    tail = 0.5 * series * bell
    return tl.where(value < 0, tail, 1 - tail), 0.3989422804014327 * bell
