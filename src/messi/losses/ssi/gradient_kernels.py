"""The gradient on the GPU from the weights between positions, and the weights of squared MMD.

The gradient of every discrepancy here is a sum of ``2 weights[p, q] (x_p - x_q)`` over the examples q of a class.
Differences are accurate far from the origin. The weights are symmetric and stored above the diagonal.
"""

import triton
import triton.language as tl

from messi.losses.ssi.memory_kernels import layout_of, scratch_of
from messi.losses.ssi.transport_kernels import squared_distances


@triton.jit
def pull(
    features, memory, value, gradient, count, totals, experts, batch, width,
    DEFECTS: tl.constexpr, OWN: tl.constexpr, REDUCTION: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of a tile of examples from all others of their classes; one program also adds up the value.

    With ``DEFECTS``, the weights within a cell are computed from defects (see ``transport_kernels``) and stored only
    for the transport of the cell to itself, with ``OWN``.
    """
    tile: tl.constexpr = 16
    columns: tl.constexpr = 32
    layout = layout_of(memory, batch)
    scratch = scratch_of(layout, experts, batch, width)
    expert = tl.program_id(0)
    if expert + tl.program_id(1) + tl.program_id(2) == 0:
        _add_up(layout, scratch, value, count, totals, experts, REDUCTION)
    p0 = tl.program_id(1) * tile
    p = p0 + tl.arange(0, tile)
    r = tl.program_id(2) * columns + tl.arange(0, columns)
    inside = p < batch
    p_class = tl.load(layout.start + p, mask=inside, other=-1)
    p_cell = tl.load(layout.cell + p, mask=inside, other=-1)
    features += expert * batch * width
    weights = scratch.weights + expert * batch * batch
    defects = scratch.defects + expert * batch * batch
    x = _points(features, layout, p, r, inside, width)
    p_defect = tl.zeros([tile], tl.float32)
    if DEFECTS:
        p_size = tl.load(layout.size + p, mask=inside, other=1)
        p_alone = tl.load(layout.end + p, mask=inside, other=0) - p_class == p_size
        p_defect = _defects(defects, layout, p, inside, batch, tile)
    total = tl.zeros([tile, columns], tl.float32)
    # The examples of the classes in a tile are one range.
    for q0 in range(tl.load(layout.start + p0), tl.load(layout.end + tl.minimum(p0 + tile, batch) - 1), tile):
        q = q0 + tl.arange(0, tile)
        exists = q < batch
        related = tl.load(layout.start + q, mask=exists, other=-2)[:, None] == p_class[None, :]
        apart = related & (q[:, None] != p[None, :])
        stored = apart
        if DEFECTS:
            within = apart & (tl.load(layout.cell + q, mask=exists, other=-2)[:, None] == p_cell[None, :])
            computed = within & p_alone[None, :] if OWN else within
            stored = apart & (computed == 0)
        place = tl.minimum(q[:, None], p[None, :]) * batch + tl.maximum(q[:, None], p[None, :])
        weight = tl.load(weights + place, mask=stored, other=0.0)
        if DEFECTS:
            if tl.max(tl.max(within.to(tl.int32), 1), 0) > 0:
                q_defect = _defects(defects, layout, q, exists, batch, tile)
                weight += tl.where(within, (q_defect[:, None] + p_defect[None, :]) / p_size[None, :], 0.0)
        y = _points(features, layout, q, r, exists, width)
        # Sums over the first of three axes stay within a thread.
        total += tl.sum(weight[:, :, None] * (x[None, :, :] - y[:, None, :]), 0)
    example = tl.load(layout.order + p, mask=inside, other=0)
    target = gradient + (expert * batch + example[:, None]) * width + r[None, :]
    scale = 2.0 * _scale(layout, scratch, totals, experts, REDUCTION)
    tl.store(target, scale * total, mask=inside[:, None] & (r < width)[None, :])


@triton.jit
def add_up(memory, value, count, totals, experts, batch, width, REDUCTION: tl.constexpr):
    """Store the value only, if no gradient is required."""
    layout = layout_of(memory, batch)
    _add_up(layout, scratch_of(layout, experts, batch, width), value, count, totals, experts, REDUCTION)


@triton.jit
def _add_up(layout, scratch, value, count, totals, experts, REDUCTION: tl.constexpr):
    total = _sum(scratch.parts, count)
    tl.store(value, total * _scale(layout, scratch, totals, experts, REDUCTION))


@triton.jit
def compare_kernels(memory, experts, batch, width, BANDWIDTHS: tl.constexpr, GRADIENT: tl.constexpr):
    """Add up squared MMD over a tile of pairs of examples, all slots of a class at once, and store the weights.

    Two examples of different cells i and j are in one slot, with the coefficient -w_ij / (n_i n_j); two of one cell
    are in all slots of their cell, with the coefficient sum_j w_ij / n_i^2.
    """
    tile: tl.constexpr = 16
    layout = layout_of(memory, batch)
    scratch = scratch_of(layout, experts, batch, width)
    cell, size, start, end = layout.cell, layout.size, layout.start, layout.end
    expert = tl.program_id(0)
    gate = scratch.gate + expert * batch
    p0, q0 = tl.program_id(1) * tile, tl.program_id(2) * tile
    value = 0.0
    if (q0 >= p0) & (q0 < tl.load(end + tl.minimum(p0 + tile, batch) - 1)):
        p, q = p0 + tl.arange(0, tile), q0 + tl.arange(0, tile)
        p_exists, q_exists = p < batch, q < batch
        p_class, q_class = tl.load(start + p, mask=p_exists, other=-1), tl.load(start + q, mask=q_exists, other=-2)
        p_cell, q_cell = tl.load(cell + p, mask=p_exists, other=0), tl.load(cell + q, mask=q_exists, other=0)
        p_gate, q_gate = tl.load(gate + p_cell), tl.load(gate + q_cell)
        p_size, q_size = tl.load(size + p_cell).to(tl.float32), tl.load(size + q_cell).to(tl.float32)
        gates = _gates_of_class(layout, gate, p_class, p0, batch, tile)
        alike = p_gate * (gates - p_gate) / (p_size * p_size)
        other = -(p_gate / p_size)[:, None] * (q_gate / q_size)[None, :]
        share = tl.where(p_cell[:, None] == q_cell[None, :], alike[:, None], other)
        share = tl.where(p_class[:, None] == q_class[None, :], share, 0.0)
        squared = squared_distances(scratch.points, expert, p, q, p_exists, q_exists, batch, width, tile)
        kernel = tl.zeros([tile, tile], tl.float32)
        slope = tl.zeros([tile, tile], tl.float32)
        for s in tl.static_range(len(BANDWIDTHS)):
            part = tl.exp(squared * (-0.5 / (BANDWIDTHS[s] * BANDWIDTHS[s])))
            kernel += part
            slope += part * (-0.5 / (BANDWIDTHS[s] * BANDWIDTHS[s]))
        value = tl.sum(tl.sum(share * kernel, 1), 0)
        if q0 == p0:
            # Each pair of cells is counted from both.
            total = tl.sum(tl.where(p_exists & (p_cell == p), p_gate * (gates - p_gate), 0.0), 0) / 2
            tl.store(scratch.totals + expert * tl.num_programs(1) + tl.program_id(1), total)
        value = tl.where(q0 > p0, 2.0 * value, value)  # a tile above the diagonal also counts for the one below
        if GRADIENT:
            target = scratch.weights + (expert * batch + p[:, None]) * batch + q[None, :]
            tl.store(target, 2.0 * share * slope, mask=p_exists[:, None] & q_exists[None, :])
    tiles = tl.num_programs(1)
    tl.store(scratch.parts + (expert * tiles + tl.program_id(1)) * tiles + tl.program_id(2), value)


@triton.jit
def _gates_of_class(layout, gate, p_class, p0, batch, TILE: tl.constexpr):
    """Return, for each position of a tile, the sum of the gates of all cells of its class."""
    total = tl.zeros([TILE], tl.float32)
    for i0 in range(tl.load(layout.start + p0), tl.load(layout.end + tl.minimum(p0 + TILE, batch) - 1), TILE):
        i = i0 + tl.arange(0, TILE)
        head = tl.load(layout.cell + i, mask=i < batch, other=-1) == i
        related = tl.load(layout.start + i, mask=i < batch, other=-2)[None, :] == p_class[:, None]
        total += tl.sum(tl.where(related, tl.load(gate + i, mask=head, other=0.0)[None, :], 0.0), 1)
    return total


@triton.jit
def _points(features, layout, p, r, exists, width):
    example = tl.load(layout.order + p, mask=exists, other=0)
    source = features + example[:, None] * width + r[None, :]
    return tl.load(source, mask=exists[:, None] & (r < width)[None, :], other=0).to(tl.float32)


@triton.jit
def _defects(defects, layout, p, exists, batch, TILE: tl.constexpr):
    """Return the sums of the defects of some positions over the slots whose first cell contains them."""
    slots = tl.load(layout.later + p, mask=exists, other=0)
    slots = tl.where(tl.load(layout.size + p, mask=exists, other=1) > 1, slots, 0)
    total = tl.zeros([TILE], tl.float32)
    for k in range(tl.max(slots, 0)):
        total += tl.load(defects + k * batch + p, mask=k < slots, other=0.0)
    return total


@triton.jit
def _scale(layout, scratch, totals, experts, REDUCTION: tl.constexpr):
    tiny: tl.constexpr = 1.1754943508222875e-38  # the smallest normal float32; all weights may be zero
    scale = 1.0
    if REDUCTION == "mean":
        scale = 1.0 / tl.maximum(tl.load(layout.counts) * experts, 1).to(tl.float32)
    if REDUCTION == "weighted":
        scale = 1.0 / tl.maximum(_sum(scratch.totals, totals), tiny)
    return scale


@triton.jit
def _sum(values, count):
    """Add up the results of the programs of other kernels in a fixed order."""
    total = tl.zeros([1024], tl.float32)
    for i0 in range(0, count, 1024):
        i = i0 + tl.arange(0, 1024)
        total += tl.load(values + i, mask=i < count, other=0.0)
    return tl.sum(total, 0)
