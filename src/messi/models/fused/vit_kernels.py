"""The operations between the matrix products of a vision transformer, each in one pass over memory.

torch reads and writes the activations several times for a residual sum and its LayerNorm, and sums bias gradients in
separate passes; together with GELU (``gelu_kernels``) these take longer than the matrix products.
Sums over rows consist of partial sums in a fixed order, so the same input gives the same bits.
Legend: N rows (tokens of all images), W width, P parts, each the sum over some of the rows, G groups of parts.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

_ROWS = 4
WARPS = 1056
"""Total number of warps: eight per multiprocessor of an H200, for which this and the tiles were tuned."""


def patches(
    images: Tensor, size: tuple[int, int], dtype: torch.dtype, *, prefix: int = 1, length: int | None = None
) -> Tensor:
    """Cut images [B, C, S, T] into patches, one row each, after rows of zeros for the prefix: [B, prefix + P, K].

    Rows end with zeros if ``length``, K, is greater than the number of pixels.
    """
    batch, channels, height, width = images.shape
    down, across = height // size[0], width // size[1]
    pixels = channels * size[0] * size[1]
    length = length or pixels
    result = torch.empty(batch, prefix + down * across, length, dtype=dtype, device=images.device)
    with torch.cuda.device_of(images):
        _patches[(prefix + down * across, batch)](
            images.contiguous(), result, across, width, height * width, pixels, length,
            PREFIX=prefix, HEIGHT=size[0], WIDTH=size[1], BLOCK=triton.next_power_of_2(length),
        )  # fmt: skip
    return result


def add_norm(
    x: Tensor, branch: Tensor | None, bias: Tensor | None, norm: nn.LayerNorm, normed: Tensor
) -> tuple[Tensor, Tensor]:
    """Return x + branch + bias [N, W] and [2, N] means and 1 / deviations; write its LayerNorm into ``normed`` [N, W].

    x [N', W] is repeated when it has fewer rows than ``normed``.
    """
    rows, width = normed.shape
    total, statistics = torch.empty(rows, width, device=x.device), torch.empty(2, rows, device=x.device)
    block = triton.next_power_of_2(width)
    with torch.cuda.device_of(x):
        _add_norm[(triton.cdiv(rows, _ROWS),)](
            x, branch, bias, norm.weight, norm.bias, total, normed, statistics, norm.eps, rows, len(x), width,
            HAS_BRANCH=branch is not None, HAS_BIAS=bias is not None, ROWS=_ROWS, BLOCK=block,
            num_warps=max(block // 128, 1),
        )  # fmt: skip
    return total, statistics


def norm_parts(rows: int, width: int) -> int:
    """Return the number of parts in which :func:`add_norm_backward` stores its sums over rows."""
    return int(min(max(WARPS // _norm_warps(width), 1), triton.cdiv(rows, _ROWS)))


def add_norm_backward(
    total_grad: Tensor, rest: Tensor, normed_grad: Tensor, total: Tensor, statistics: Tensor, weight: Tensor,
    grad: Tensor, parts: Tensor,
) -> None:  # fmt: skip
    """Write the gradient of the sum into ``grad`` [N, W], and parts of weight, shift and bias gradients [P, 3, W].

    ``rest`` [N, W] is what rounding took from ``total_grad``, and becomes what it takes from ``grad``.
    """
    rows, width = total.shape
    with torch.cuda.device_of(total):
        _add_norm_backward[(len(parts),)](
            total_grad, rest, normed_grad, total, statistics, weight, grad, parts, rows, width,
            ROWS=_ROWS, BLOCK=triton.next_power_of_2(width), num_warps=_norm_warps(width),
        )  # fmt: skip


def _norm_warps(width: int) -> int:
    return int(max(triton.next_power_of_2(width) // 256, 1))


def sum_parts(parts: Tensor) -> Tensor:
    """Return the sums of [G, P, ...] over P; torch would take longer than the kernels that compute the parts."""
    groups, rows, width = *parts.shape[:2], parts[0, 0].numel()
    result = torch.empty(groups, *parts.shape[2:], device=parts.device)
    with torch.cuda.device_of(parts):
        _sum_parts[(triton.cdiv(width, 8), groups)](parts, result, rows, width, ROWS=128, BLOCK=8)
    return result


@triton.jit
def _patches(
    images, result, across, width, area, pixels, length,
    PREFIX: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    token, image = tl.program_id(0), tl.program_id(1).to(tl.int64)
    place = tl.arange(0, BLOCK)
    patch = token - PREFIX
    inside = place < tl.where(patch >= 0, pixels, 0)
    channel, pixel = place // (HEIGHT * WIDTH), place % (HEIGHT * WIDTH)
    row, column = patch // across * HEIGHT + pixel // WIDTH, patch % across * WIDTH + pixel % WIDTH
    source = images + (image * (pixels // (HEIGHT * WIDTH)) + channel) * area + row * width + column
    target = result + (image * tl.num_programs(0) + token) * length + place
    tl.store(target, tl.load(source, mask=inside, other=0.0), mask=place < length)


@triton.jit
def _add_norm(
    x, branch, bias, weight, shift, total, normed, statistics, epsilon, rows, x_rows, width,
    HAS_BRANCH: tl.constexpr, HAS_BIAS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    within = column < width
    inside = (row < rows)[:, None] & within[None, :]
    place = row[:, None].to(tl.int64) * width + column[None, :]
    value = tl.load(x + (row % x_rows)[:, None].to(tl.int64) * width + column[None, :], mask=inside, other=0.0)
    if HAS_BRANCH:
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
    total_grad, rest, normed_grad, total, statistics, weight, grad, parts, rows, width,
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
        result += tl.load(rest + place, mask=inside, other=0.0).to(tl.float32)
        bias_sum += tl.where(inside, result, 0.0)
        rounded = result.to(grad.dtype.element_ty)
        tl.store(grad + place, rounded, mask=inside)
        tl.store(rest + place, result - rounded.to(tl.float32), mask=inside)
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
