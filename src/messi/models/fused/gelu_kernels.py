"""GELU between two matrix products, forward and backward, each in one pass over memory.

torch computes it with a slow erf, and the sum for the bias in a pass of its own. Inside the products it was slower on
an H200: for these shapes Triton multiplies at half of cuBLAS's rate.
Legend: N rows, H hidden units.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from messi.models.fused.vit_kernels import WARPS

_ROWS, _TILE = 4, 256


def gelu(hidden: Tensor, result: Tensor, *, quick: bool) -> None:
    """Write the GELU of ``hidden`` into ``result``, both contiguous."""
    size, block = hidden.numel(), 2048
    with torch.cuda.device_of(hidden):
        _gelu[(triton.cdiv(size, block),)](hidden, result, size, QUICK=quick, BLOCK=block)


def gelu_parts(rows: int, width: int) -> int:
    """Return the number of parts in which :func:`gelu_backward` stores its sum over rows."""
    return int(min(max(WARPS // triton.cdiv(width, _TILE), 1), triton.cdiv(rows, _ROWS)))


def gelu_backward(grad: Tensor, hidden: Tensor, parts: Tensor, *, quick: bool) -> None:
    """Replace ``hidden`` [N, H] by its gradient, and write parts [P, H] of the sum of that over the rows."""
    rows, width = hidden.shape
    with torch.cuda.device_of(hidden):
        _gelu_backward[(triton.cdiv(width, _TILE), len(parts))](
            grad, hidden, parts, rows, width, QUICK=quick, ROWS=_ROWS, BLOCK=_TILE, num_warps=8
        )


@triton.jit
def _gelu(hidden, result, size, QUICK: tl.constexpr, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(hidden + place, mask=place < size, other=0.0).to(tl.float32)
    below, _ = gate(value, QUICK)
    tl.store(result + place, value * below, mask=place < size)


@triton.jit
def _gelu_backward(
    grad, hidden, parts, rows, width, QUICK: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    within = column < width
    total = tl.zeros([ROWS, BLOCK], tl.float32)
    for start in range(tl.program_id(1) * ROWS, rows, tl.num_programs(1) * ROWS):
        row = start + tl.arange(0, ROWS)
        inside = (row < rows)[:, None] & within[None, :]
        place = row[:, None].to(tl.int64) * width + column[None, :]
        value = tl.load(hidden + place, mask=inside, other=0.0).to(tl.float32)
        below, density = gate(value, QUICK)
        value = tl.load(grad + place, mask=inside, other=0.0).to(tl.float32) * (below + value * density)
        total += value
        tl.store(hidden + place, value, mask=inside)
    tl.store(parts + tl.program_id(1) * width + column, tl.sum(total, 0), mask=within)


@triton.jit
def gate(value, QUICK: tl.constexpr):
    """Return the factor by which GELU multiplies a value, and the derivative of that factor."""
    if QUICK:
        share = 1 / (1 + tl.exp(-1.702 * value))
        result = share, 1.702 * share * (1 - share)
    else:
        result = _normal(value)
    return result


@triton.jit
def _normal(value):
    """Return CDF and density of the standard normal distribution (Abramowitz and Stegun 7.1.26, accurate to 1.5e-7).

    Both share one exponential: with the erf of the library, GELU would be bound by arithmetic. For the same reason the
    reciprocal is a squared rsqrt, which takes six instructions fewer than a division.
    """
    bell = tl.exp2(-0.7213475204444817 * value * value)
    root = tl.rsqrt(1 + 0.2316418882663604 * tl.abs(value))
    t = root * root
    series = t * (
        0.127414796 + t * (-0.142248368 + t * (0.7107068705 + t * (-0.7265760135 + t * 0.5307027145)))
    )  # fmt: skip
    tail = series * bell
    return tl.where(value < 0, tail, 1 - tail), 0.3989422804014327 * bell
