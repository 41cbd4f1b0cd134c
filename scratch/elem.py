"""Candidates: GELU with fewer instructions; LayerNorm backward whose residual gradient has 24 bits."""
import torch, triton
import triton.language as tl

@triton.jit
def _normal2(value, KIND: tl.constexpr):
    square = value * value
    bell = tl.exp2(square * -0.7213475204444817)
    d = 1 + 0.2316418882663604 * tl.abs(value)
    if KIND == 1:
        t = tl.rsqrt(d * d)
    elif KIND == 2:
        t = tl.rsqrt(d)
        t = t * t
    else:
        t = 1 / d
    tail = bell * (t * (0.127414796 + t * (-0.142248368 + t * (0.7107068705 + t * (-0.7265760135 + t * 0.5307027145)))))
    return tl.where(value < 0, tail, 1 - tail), 0.3989422804014327 * bell

@triton.jit
def _gelu2(hidden, result, size, KIND: tl.constexpr, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(hidden + place, mask=place < size, other=0.0).to(tl.float32)
    below, _ = _normal2(value, KIND)
    tl.store(result + place, value * below, mask=place < size)

@triton.jit
def _gelu_backward2(grad, hidden, parts, rows, width, KIND: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    within = column < width
    total = tl.zeros([ROWS, BLOCK], tl.float32)
    for start in range(tl.program_id(1) * ROWS, rows, tl.num_programs(1) * ROWS):
        row = start + tl.arange(0, ROWS)
        inside = (row < rows)[:, None] & within[None, :]
        place = row[:, None].to(tl.int64) * width + column[None, :]
        value = tl.load(hidden + place, mask=inside, other=0.0).to(tl.float32)
        above = tl.load(grad + place, mask=inside, other=0.0).to(tl.float32)
        below, density = _normal2(value, KIND)
        value = above * (below + value * density)
        total += value
        tl.store(hidden + place, value, mask=inside)
    tl.store(parts + tl.program_id(1) * width + column, tl.sum(total, 0), mask=within)

@triton.jit
def _join(high, low):
    """The number of 24 bits in a bfloat16 and the eight bits after it."""
    bits = (high.to(tl.int16, bitcast=True).to(tl.int32) << 16) + (low.to(tl.int32) << 8) + 128
    return bits.to(tl.float32, bitcast=True)

@triton.jit
def _split(value):
    high = value.to(tl.bfloat16)
    bits = value.to(tl.int32, bitcast=True) >> 8
    low = tl.minimum(bits - (high.to(tl.int16, bitcast=True).to(tl.int32) << 8), 127)
    return high, low.to(tl.int8)

@triton.jit
def _add_norm_backward2(
    total_grad, total_low, normed_grad, total, statistics, weight, grad, grad_low, parts, rows, width,
    LOW: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    column = tl.arange(0, BLOCK)
    within = column < width
    factor = tl.load(weight + column, mask=within, other=0.0)
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
        above = tl.load(normed_grad + place, mask=inside, other=0.0).to(tl.float32)
        before = tl.load(total_grad + place, mask=inside, other=0.0)
        if LOW:
            before = _join(before, tl.load(total_low + place, mask=inside, other=0))
        unit = tl.where(inside, (unit - mean[:, None]) * scale[:, None], 0.0)
        weight_sum += above * unit
        shift_sum += above
        above *= factor[None, :]
        along = tl.sum(above * unit, 1) / width
        level = tl.sum(above, 1) / width
        result = (above - level[:, None] - unit * along[:, None]) * scale[:, None] + before
        bias_sum += tl.where(inside, result, 0.0)
        high, low = _split(result)
        tl.store(grad + place, high, mask=inside)
        tl.store(grad_low + place, low, mask=inside)
    partial = parts + 3 * tl.program_id(0) * width + column
    tl.store(partial, tl.sum(weight_sum, 0), mask=within)
    tl.store(partial + width, tl.sum(shift_sum, 0), mask=within)
    tl.store(partial + 2 * width, tl.sum(bias_sum, 0), mask=within)
