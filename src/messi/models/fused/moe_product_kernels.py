"""Products of rows and the weights of their experts, forward and backward; ``moe_row_kernels`` explains the rows.

Each expert's product has another number of rows, which only the device knows. Padding is zero, so it adds nothing.
Legend: E experts, R rows, I inputs, O outputs of a layer, W width.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from messi.models.fused.attention_kernels import EXACT
from messi.models.fused.gelu_kernels import gate
from messi.models.fused.moe_row_kernels import TILE, Plan

_COLUMNS, _INNER, _SPLITS = 128, 64, 8


def multiply(rows: Tensor, weight: Tensor, bias: Tensor | None, where: Plan) -> Tensor:
    """Multiply rows by the weight of their expert: [R, I], [E, I, O], [E, 1, O] -> [R, O]; strides are free."""
    result = torch.empty(len(rows), weight.shape[2], dtype=rows.dtype, device=rows.device)
    _launch(rows, weight, bias, None, result, where, _PLAIN)
    return result


def multiply_gelu(rows: Tensor, weight: Tensor, bias: Tensor, where: Plan) -> tuple[Tensor, Tensor]:
    """Return the product like :func:`multiply`, and its exact GELU."""
    hidden = torch.empty(len(rows), weight.shape[2], dtype=rows.dtype, device=rows.device)
    active = torch.empty_like(hidden)
    _launch(rows, weight, bias, hidden, active, where, _GELU)
    return hidden, active


def multiply_gelu_backward(rows: Tensor, weight: Tensor, hidden: Tensor, where: Plan) -> Tensor:
    """Return the gradient of ``hidden`` [R, O], where the product is the gradient of its GELU."""
    result = torch.empty_like(hidden)
    _launch(rows, weight, None, hidden, result, where, _GELU_BACKWARD)
    return result


_PLAIN, _GELU, _GELU_BACKWARD = (tl.constexpr(number) for number in range(3))


def _launch(
    rows: Tensor, weight: Tensor, bias: Tensor | None, hidden: Tensor | None, result: Tensor, where: Plan,
    kind: tl.constexpr,
) -> None:  # fmt: skip
    inner, width = weight.shape[1:]
    with torch.cuda.device_of(rows):
        _multiply[(len(where.experts) * triton.cdiv(width, _COLUMNS),)](
            rows, weight, bias, hidden, result, where.experts, inner, width, *weight.stride(),
            HAS_BIAS=bias is not None, KIND=kind, TILE=TILE, COLUMNS=_COLUMNS, INNER=_INNER, num_warps=8, num_stages=3,
        )  # fmt: skip


def weight_grads(left: Tensor, right: Tensor, where: Plan) -> Tensor:
    """Return the product over the rows of each expert in float32: [R, I], [R, O] -> [E, I, O]."""
    experts = len(where.bounds) - 1
    result = torch.empty(experts, left.shape[1], right.shape[1], device=left.device)
    tiles = triton.cdiv(left.shape[1], _COLUMNS) * triton.cdiv(right.shape[1], _COLUMNS)
    with torch.cuda.device_of(left):
        _weight_grads[(tiles, experts)](
            left, right, where.bounds, result, left.shape[1], right.shape[1],
            ROWS=_INNER, COLUMNS=_COLUMNS, num_warps=8, num_stages=3,
        )  # fmt: skip
    return result


def bias_grads(rows: Tensor, where: Plan) -> Tensor:
    """Return the sum over the rows of each expert in float32: [R, W] -> [E, 1, W]."""
    experts, width = len(where.bounds) - 1, rows.shape[1]
    parts = torch.empty(experts, _SPLITS, width, device=rows.device)
    with torch.cuda.device_of(rows):
        _row_sums[(triton.cdiv(width, 64), _SPLITS, experts)](rows, where.bounds, parts, width, ROWS=64, BLOCK=64)
    return parts.sum(1, keepdim=True)


@triton.jit
def _multiply(
    rows, weight, bias, hidden, result, experts, inner, width, weight_expert, weight_inner, weight_column,
    HAS_BIAS: tl.constexpr, KIND: tl.constexpr, TILE: tl.constexpr, COLUMNS: tl.constexpr, INNER: tl.constexpr,
):  # fmt: skip
    across = tl.cdiv(width, COLUMNS)
    tile = tl.program_id(0) // across
    expert = tl.load(experts + tile).to(tl.int64)
    if expert < 0:
        return
    row = tile.to(tl.int64) * TILE + tl.arange(0, TILE)
    column, place = tl.program_id(0) % across * COLUMNS + tl.arange(0, COLUMNS), tl.arange(0, INNER)
    within = (column < width)[None, :]
    left = rows + row[:, None] * inner + place[None, :]
    right = weight + expert * weight_expert + place[:, None] * weight_inner + column[None, :] * weight_column
    total = tl.zeros([TILE, COLUMNS], tl.float32)
    for start in range(0, inner, INNER):
        a = tl.load(left, mask=(start + place < inner)[None, :], other=0.0)
        b = tl.load(right, mask=(start + place < inner)[:, None] & within, other=0.0)
        total = tl.dot(a, b, total, input_precision=EXACT)
        left += INNER
        right += INNER * weight_inner
    if HAS_BIAS:
        total += tl.load(bias + expert * width + column, mask=column < width, other=0.0)[None, :]
    target = row[:, None] * width + column[None, :]
    if KIND == _GELU:
        tl.store(hidden + target, total, mask=within)
        below, _ = gate(total, QUICK=False)
        total *= below
    elif KIND == _GELU_BACKWARD:
        value = tl.load(hidden + target, mask=within, other=0.0).to(tl.float32)
        below, density = gate(value, QUICK=False)
        total *= below + value * density
    tl.store(result + target, total, mask=within)


@triton.jit
def _weight_grads(
    left, right, bounds, result, height, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    across, expert = tl.cdiv(width, COLUMNS), tl.program_id(1)
    down = tl.program_id(0) // across * COLUMNS + tl.arange(0, COLUMNS)
    column = tl.program_id(0) % across * COLUMNS + tl.arange(0, COLUMNS)
    first, last = tl.load(bounds + expert), tl.load(bounds + expert + 1)
    row = first.to(tl.int64) + tl.arange(0, ROWS)
    left += row[:, None] * height + down[None, :]
    right += row[:, None] * width + column[None, :]
    total = tl.zeros([COLUMNS, COLUMNS], tl.float32)
    for _ in range(first, last, ROWS):
        a = tl.load(left, mask=(down < height)[None, :], other=0.0)
        b = tl.load(right, mask=(column < width)[None, :], other=0.0)
        total = tl.dot(tl.trans(a), b, total, input_precision=EXACT)
        left += ROWS * height
        right += ROWS * width
    target = (expert.to(tl.int64) * height + down[:, None]) * width + column[None, :]
    tl.store(result + target, total, mask=(down < height)[:, None] & (column < width)[None, :])


@triton.jit
def _row_sums(rows, bounds, parts, width, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    column, split, expert = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.program_id(1), tl.program_id(2)
    splits, within = tl.num_programs(1), column < width
    first, last = tl.load(bounds + expert), tl.load(bounds + expert + 1)
    total = tl.zeros([ROWS, BLOCK], tl.float32)
    for start in range(first + split * ROWS, last, splits * ROWS):
        row = (start + tl.arange(0, ROWS)).to(tl.int64)
        total += tl.load(rows + row[:, None] * width + column[None, :], mask=within[None, :], other=0.0).to(tl.float32)
    tl.store(parts + (expert * splits + split) * width + column, tl.sum(total, 0), mask=within)
