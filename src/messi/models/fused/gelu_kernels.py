"""A linear layer with GELU, forward and backward, each in one launch that multiplies and applies the function.

A product of a few hundred numbers per element is so short that reading and writing its result for GELU took as long
again. Here GELU is applied before the result is stored, and its derivative before the gradient is.
Legend: N rows, K inputs, H outputs (hidden units), P parts, each the sum over a tile of rows.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from messi.models.fused.attention_kernels import EXACT
from messi.models.fused.vit_kernels import gate

ROWS = 128
_SHAPE = {"ROWS": ROWS, "COLUMNS": 128, "INNER": 64, "num_warps": 8, "num_stages": 3, "maxnreg": 128}
"""With so few registers an H200 runs two programs per multiprocessor: one multiplies while the other applies GELU."""


def linear_gelu(x: Tensor, weight: Tensor, bias: Tensor, hidden: Tensor, active: Tensor, *, quick: bool) -> None:
    """Write x weight' + bias into ``hidden`` [N, H] and its GELU into ``active``: x [N, K], weight [H, K]."""
    (rows, inner), width = x.shape, len(weight)
    with torch.cuda.device_of(x):
        _linear_gelu[(_tiles(rows, width),)](
            x, weight, bias, hidden, active, rows, inner, width, x.stride(0), QUICK=quick, **_SHAPE
        )


def linear_gelu_backward(grad: Tensor, weight: Tensor, hidden: Tensor, parts: Tensor, *, quick: bool) -> None:
    """Replace ``hidden`` [N, H] by its gradient, given that of the layer after its GELU.

    Takes grad [N, K] and that layer's weight [K, H]; writes :func:`linear_parts` parts [P, H] of the sum over rows.
    """
    rows, inner = grad.shape
    width = weight.shape[1]
    with torch.cuda.device_of(grad):
        _linear_gelu_backward[(_tiles(rows, width),)](
            grad, weight, hidden, parts, rows, inner, width, QUICK=quick, **_SHAPE
        )


def linear_parts(rows: int) -> int:
    """Return the number of parts in which :func:`linear_gelu_backward` stores its sum over rows."""
    return int(triton.cdiv(rows, ROWS))


def _tiles(rows: int, width: int) -> int:
    return int(triton.cdiv(rows, ROWS) * triton.cdiv(width, _SHAPE["COLUMNS"]))


@triton.jit
def _linear_gelu(
    x, weight, bias, hidden, active, rows, inner, width, x_row,
    QUICK: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, INNER: tl.constexpr,
):  # fmt: skip
    row, column, inside, place = _tile(rows, width, ROWS, COLUMNS)
    total = _product(x, x_row, weight, 1, inner, row, column, rows, inner, width, ROWS, COLUMNS, INNER)
    total += tl.load(bias + column, mask=column < width, other=0.0)[None, :].to(tl.float32)
    rounded = total.to(hidden.dtype.element_ty)
    tl.store(hidden + place, rounded, mask=inside)
    value = rounded.to(tl.float32)  # the backward pass reads it
    below, _ = gate(value, QUICK)
    tl.store(active + place, value * below, mask=inside)


@triton.jit
def _linear_gelu_backward(
    grad, weight, hidden, parts, rows, inner, width,
    QUICK: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, INNER: tl.constexpr,
):  # fmt: skip
    row, column, inside, place = _tile(rows, width, ROWS, COLUMNS)
    total = _product(grad, inner, weight, width, 1, row, column, rows, inner, width, ROWS, COLUMNS, INNER)
    value = tl.load(hidden + place, mask=inside, other=0.0).to(tl.float32)
    below, density = gate(value, QUICK)
    value = total * (below + value * density)
    tl.store(hidden + place, value, mask=inside)
    part = parts + tl.program_id(0) // tl.cdiv(width, COLUMNS) * width + column
    tl.store(part, tl.sum(tl.where(inside, value, 0.0), 0), mask=column < width)


@triton.jit
def _tile(rows, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Return the rows and columns of a program, which numbers exist, and their offsets; columns change first."""
    across = tl.cdiv(width, COLUMNS)
    row = tl.program_id(0) // across * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(0) % across * COLUMNS + tl.arange(0, COLUMNS)
    inside = (row < rows)[:, None] & (column < width)[None, :]
    return row, column, inside, row[:, None].to(tl.int64) * width + column[None, :]


@triton.jit
def _product(
    left, left_row, right, right_row, right_column, row, column, rows, inner, width,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, INNER: tl.constexpr,
):  # fmt: skip
    """Return a tile of the product of left [N, K] and right [K, H], whose strides are free, in float32."""
    depth = tl.arange(0, INNER)
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(0, inner, INNER):
        within = start + depth < inner
        a = tl.load(
            left + row[:, None].to(tl.int64) * left_row + (start + depth)[None, :],
            mask=(row < rows)[:, None] & within[None, :], other=0.0,
        )  # fmt: skip
        b = tl.load(
            right + (start + depth)[:, None] * right_row + column[None, :] * right_column,
            mask=within[:, None] & (column < width)[None, :], other=0.0,
        )  # fmt: skip
        total = tl.dot(a, b, total, input_precision=EXACT)
    return total
