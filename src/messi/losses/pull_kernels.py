"""From weights between places to the gradient on the GPU, and the weights that squared MMD gives.

The gradient of every discrepancy here is a sum over the examples q of the same class, ``2 weights[p, q] (x_p - x_q)``,
of differences because they are accurate far from the origin. Weights are symmetric and lie above the diagonal.
"""

import triton
import triton.language as tl

from messi.losses.transport_kernels import squared_distances


@triton.jit
def pull(
    features, order, cell, size, start, end, later, counts, weights, defects, result, experts, batch, width,
    DEFECTS: tl.constexpr, MEAN: tl.constexpr, TILE: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Pull a tile of examples to and from all others of their classes.

    With ``DEFECTS``, the weights within a cell are not stored but follow from those (see ``transport_kernels``).
    """
    expert = tl.program_id(0)
    p0 = tl.program_id(1) * TILE
    p = p0 + tl.arange(0, TILE)
    r = tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)
    inside = p < batch
    p_class = tl.load(start + p, mask=inside, other=-1)
    p_cell = tl.load(cell + p, mask=inside, other=-1)
    x = _points(features, order, expert, p, r, inside, batch, width)
    p_defect = tl.zeros([TILE], tl.float32)
    if DEFECTS:
        p_size = tl.load(size + p, mask=inside, other=1)
        p_defect = _defects(defects + expert * batch * batch, size, later, p, inside, batch, TILE)
    total = tl.zeros([TILE, COLUMNS], tl.float32)
    # The examples of the classes in a tile are one range.
    for q0 in range(tl.load(start + p0), tl.load(end + tl.minimum(p0 + TILE, batch) - 1), TILE):
        q = q0 + tl.arange(0, TILE)
        exists = q < batch
        related = tl.load(start + q, mask=exists, other=-2)[:, None] == p_class[None, :]
        apart = related & (q[:, None] != p[None, :])
        stored = apart
        if DEFECTS:
            within = apart & (tl.load(cell + q, mask=exists, other=-2)[:, None] == p_cell[None, :])
            stored = apart & (within == 0)
        place = tl.minimum(q[:, None], p[None, :]) * batch + tl.maximum(q[:, None], p[None, :])
        weight = tl.load(weights + expert * batch * batch + place, mask=stored, other=0.0)
        if DEFECTS:
            if tl.max(tl.max(within.to(tl.int32), 1), 0) > 0:
                q_defect = _defects(defects + expert * batch * batch, size, later, q, exists, batch, TILE)
                weight += tl.where(within, (q_defect[:, None] + p_defect[None, :]) / p_size[None, :], 0.0)
        y = _points(features, order, expert, q, r, exists, batch, width)
        # Sums over the first of three axes stay within a thread.
        total += tl.sum(weight[:, :, None] * (x[None, :, :] - y[:, None, :]), 0)
    example = tl.load(order + p, mask=inside, other=0)
    target = result + (expert * batch + example[:, None]) * width + r[None, :]
    scale = 2.0 * _scale(counts, experts, MEAN)
    tl.store(target, scale * total, mask=inside[:, None] & (r < width)[None, :])


@triton.jit
def add_up(parts, counts, result, number, experts, MEAN: tl.constexpr, BLOCK: tl.constexpr):
    """Reduce what the programs of other kernels have added up, in an order that is always the same."""
    total = tl.zeros([BLOCK], tl.float32)
    for i0 in range(0, number, BLOCK):
        i = i0 + tl.arange(0, BLOCK)
        total += tl.load(parts + i, mask=i < number, other=0.0)
    tl.store(result, tl.sum(total, 0) * _scale(counts, experts, MEAN))


@triton.jit
def compare_kernels(
    cell, size, start, end, gate, points, values, weights, batch, lines,
    BANDWIDTHS: tl.constexpr, GRADIENT: tl.constexpr, STEP: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Add up squared MMD over a tile of pairs of examples, all slots of a class at once, and store the weights.

    Two examples of different cells i and j are in one slot, with the coefficient -w_ij / (n_i n_j); two of one cell
    are in all slots of their cell, with the coefficient sum_j w_ij / n_i^2.
    """
    expert = tl.program_id(0)
    p0, q0 = tl.program_id(1) * TILE, tl.program_id(2) * TILE
    value = 0.0
    if (q0 >= p0) & (q0 < tl.load(end + tl.minimum(p0 + TILE, batch) - 1)):
        p, q = p0 + tl.arange(0, TILE), q0 + tl.arange(0, TILE)
        p_exists, q_exists = p < batch, q < batch
        p_class, q_class = tl.load(start + p, mask=p_exists, other=-1), tl.load(start + q, mask=q_exists, other=-2)
        p_cell, q_cell = tl.load(cell + p, mask=p_exists, other=0), tl.load(cell + q, mask=q_exists, other=0)
        p_gate, q_gate = tl.load(gate + expert * batch + p_cell), tl.load(gate + expert * batch + q_cell)
        p_size, q_size = tl.load(size + p_cell).to(tl.float32), tl.load(size + q_cell).to(tl.float32)
        gates = _gates_of_class(cell, start, gate + expert * batch, p_class, p0, end, batch, TILE)
        alike = p_gate * (gates - p_gate) / (p_size * p_size)
        other = -(p_gate / p_size)[:, None] * (q_gate / q_size)[None, :]
        share = tl.where(p_cell[:, None] == q_cell[None, :], alike[:, None], other)
        share = tl.where(p_class[:, None] == q_class[None, :], share, 0.0)
        squared = squared_distances(
            points + expert * lines * batch, p, q, p_exists, q_exists, batch, lines, STEP, TILE
        )  # fmt: skip
        kernel = tl.zeros([TILE, TILE], tl.float32)
        slope = tl.zeros([TILE, TILE], tl.float32)
        for s in tl.static_range(len(BANDWIDTHS)):
            part = tl.exp(squared * (-0.5 / (BANDWIDTHS[s] * BANDWIDTHS[s])))
            kernel += part
            slope += part * (-0.5 / (BANDWIDTHS[s] * BANDWIDTHS[s]))
        value = tl.sum(tl.sum(share * kernel, 1), 0)
        value = tl.where(q0 > p0, 2.0 * value, value)  # a tile above the diagonal stands for that below, too
        if GRADIENT:
            target = weights + (expert * batch + p[:, None]) * batch + q[None, :]
            tl.store(target, 2.0 * share * slope, mask=p_exists[:, None] & q_exists[None, :])
    tiles = tl.num_programs(1)
    tl.store(values + (expert * tiles + tl.program_id(1)) * tiles + tl.program_id(2), value)


@triton.jit
def _gates_of_class(cell, start, gate, p_class, p0, end, batch, TILE: tl.constexpr):
    """Return for each place of a tile the sum of the gates of all cells of its class."""
    total = tl.zeros([TILE], tl.float32)
    for i0 in range(tl.load(start + p0), tl.load(end + tl.minimum(p0 + TILE, batch) - 1), TILE):
        i = i0 + tl.arange(0, TILE)
        head = tl.load(cell + i, mask=i < batch, other=-1) == i
        related = tl.load(start + i, mask=i < batch, other=-2)[None, :] == p_class[:, None]
        total += tl.sum(tl.where(related, tl.load(gate + i, mask=head, other=0.0)[None, :], 0.0), 1)
    return total


@triton.jit
def _points(features, order, expert, p, r, exists, batch, width):
    example = tl.load(order + p, mask=exists, other=0)
    source = features + (expert * batch + example[:, None]) * width + r[None, :]
    return tl.load(source, mask=exists[:, None] & (r < width)[None, :], other=0).to(tl.float32)


@triton.jit
def _defects(defects, size, later, p, exists, batch, TILE: tl.constexpr):
    """Return the sums of the defects of some places over the slots whose first cell is theirs."""
    slots = tl.load(later + p, mask=exists, other=0)
    slots = tl.where(tl.load(size + p, mask=exists, other=1) > 1, slots, 0)
    total = tl.zeros([TILE], tl.float32)
    for k in range(tl.max(slots, 0)):
        total += tl.load(defects + k * batch + p, mask=k < slots, other=0.0)
    return total


@triton.jit
def _scale(counts, experts, MEAN: tl.constexpr):
    scale = 1.0
    if MEAN:
        scale = 1.0 / tl.maximum(tl.load(counts) * experts, 1).to(tl.float32)
    return scale
