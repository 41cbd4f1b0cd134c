"""Entropic optimal transport of all slots on the GPU; ``messi.discrepancy.sinkhorn`` defines it.

A slot whose cells fit into a tile is solved in registers by one program; a larger one goes through memory. Scores are
in base 2, and logarithms of means replace those of sums, so no logarithm of a size is added and rounded.

The gradient is stored as a matrix over the sorted positions: at position p it is
``2 sum_q weights[p, q] (x_p - x_q)``. With the plan g of a slot of weight w, whose cells have n and k points, and the
defects ``d_p = sum_q g[p, q] - 1/n`` that the last update, one of the columns, leaves in the rows:

    weights[p, q] = w (g[p, q] - d_p / k)   between the cells
    weights[p, q] = (D_p + D_q) / n         within a cell,  D_p = sum of w d_p over the slots whose first cell it is

The first, above the diagonal, and the terms of D_p are computed here; ``gradient_kernels`` does the rest.

Debiased, a cell is also transported to itself, with half of minus the sum of the weights of its slots as the weight w:

    weights[p, q] += w (g[p, q] + g[q, p])   within a cell
"""

import triton
import triton.language as tl

from messi.losses.ssi.memory_kernels import layout_of, scratch_of


@triton.jit
def compare_means(memory, experts, batch, width, GRADIENT: tl.constexpr, PROGRAMS: tl.constexpr):
    """Add up the mean costs of all slots, and the part of their values that is a distance of means.

    For a cell of one example this is the whole solution: the value is the mean cost, and the plan is uniform.
    """
    block: tl.constexpr = 256
    layout = layout_of(memory, batch)
    scratch = scratch_of(layout, experts, batch, width)
    program = tl.program_id(0)
    cost = 0.0
    value = 0.0
    total = 0.0
    for item in range(program, tl.load(layout.counts) * experts, PROGRAMS):
        expert, x, y, n, k = read_slot(layout, item, experts)
        a, b = expert * batch + x, expert * batch + y
        moved = _squared_distance(scratch, a, b, width, block)
        mean_cost = moved + _spread(scratch, a, width, block) + _spread(scratch, b, width, block)
        weight = tl.load(scratch.gate + a) * tl.load(scratch.gate + b)
        single = tl.minimum(n, k) == 1
        cost += mean_cost * (n * k)
        total += weight
        value += weight * tl.where(single, mean_cost, moved)
        if GRADIENT:
            if single:
                defects = defects_of(layout, scratch, expert, x, y, batch)
                for i0 in range(0, n * k, block):
                    i = i0 + tl.arange(0, block)
                    p, q = tl.where(n > 1, i, 0), tl.where(k > 1, i, 0)
                    tl.store(scratch.weights + (a + p) * batch + y + q, weight / (n * k), mask=i < n * k)
                    tl.store(defects + p, 0.0, mask=i < n * k)
    tl.store(scratch.costs + program, cost)
    tl.store(scratch.parts + program, value)
    tl.store(scratch.totals + program, total)


@triton.jit
def solve_small(
    memory, epsilon, iterations, experts, batch, width,
    RELATIVE: tl.constexpr, GRADIENT: tl.constexpr, DEBIASED: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    """Solve the slots whose cells have up to 16 points: one warp is enough for each."""
    layout = layout_of(memory, batch)
    scratch = scratch_of(layout, experts, batch, width)
    program = tl.program_id(0)
    value = 0.0
    for item in range(program, tl.load(layout.counts) * experts, PROGRAMS):
        expert, x, y, n, k = read_slot(layout, item, experts)
        if (tl.minimum(n, k) > 1) & (tl.maximum(n, k) <= 16):
            unit = strength(layout, scratch, epsilon, experts, RELATIVE, PROGRAMS)
            weight = slot_weight(scratch, expert, x, y, batch)
            value += solve_tile(
                layout, scratch, expert, x, y, n, k, weight, unit, iterations, batch, width, GRADIENT, False, 16
            )  # fmt: skip
    if DEBIASED:
        for item in range(program, number_of_cells(layout, batch) * experts, PROGRAMS):
            expert, x, n, weight = read_cell(layout, scratch, item, experts, batch)
            if (n > 1) & (n <= 16):
                unit = strength(layout, scratch, epsilon, experts, RELATIVE, PROGRAMS)
                value += solve_tile(
                    layout, scratch, expert, x, x, n, n, weight, unit, iterations, batch, width, GRADIENT, True, 16
                )  # fmt: skip
    tl.store(scratch.parts + PROGRAMS + program, value)


@triton.jit
def solve_tile(
    layout, scratch, expert, x, y, n, k, weight, unit, iterations, batch, width,
    GRADIENT: tl.constexpr, OWN: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Solve a slot whose cells have up to ``TILE`` points by Sinkhorn in registers, and return its weighted value.

    With ``OWN``, both cells are the same one.
    """
    i = tl.arange(0, TILE)
    cost = squared_distances(scratch.points, expert, x + i, y + i, i < n, i < k, batch, width, TILE)
    rows, columns = i[:, None] < n, i[None, :] < k
    # A line outside its cell keeps finite scores, so it has a maximum; the lines across it ignore it.
    scores = cost * (-1.0 / unit)
    by_row = tl.where(columns, scores, float("-inf"))
    by_column = tl.where(rows, scores, float("-inf"))
    # The potentials are a column and a row of the tile. Only the row is kept between iterations, so none has to move
    # between threads.
    g = tl.zeros([1, TILE], tl.float32)
    for _ in range(iterations - 1):
        g = -_log_mean(by_column - _log_mean(by_row + g, 1.0 / k, 1), 1.0 / n, 0)
    f = -_log_mean(by_row + g, 1.0 / k, 1)
    g = -_log_mean(by_column + f, 1.0 / n, 0)
    dual = _sum(tl.where(rows, f, 0.0)) / n + _sum(tl.where(columns, g, 0.0)) / k
    if GRADIENT:
        # A softmax over the columns: their mass is exact even if the scores have lost precision.
        by_column += f
        plan = tl.exp2(by_column - tl.max(by_column, 0, keep_dims=True))
        plan = tl.where(columns, plan / (tl.sum(plan, 0, keep_dims=True) * k), 0.0)
        target = scratch.weights + (expert * batch + x + i[:, None]) * batch + y + i[None, :]
        if OWN:
            tl.store(target, weight * (plan + tl.trans(plan)), mask=columns & (i[:, None] < i[None, :]))
        else:
            defect = weight * (tl.sum(plan, 1, keep_dims=True) - 1.0 / n)
            tl.store(target, weight * plan - defect / k, mask=rows & columns)
            tl.store(defects_of(layout, scratch, expert, x, y, batch) + i[:, None], defect, mask=rows)
    return weight * unit * dual


@triton.jit
def read_slot(layout, item, experts):
    """Return the expert of a work item, and the first positions and the sizes of its two cells."""
    x, y = tl.load(layout.first + item // experts), tl.load(layout.second + item // experts)
    return item % experts, x, y, tl.load(layout.size + x), tl.load(layout.size + y)


@triton.jit
def slot_weight(scratch, expert, x, y, batch):
    return tl.load(scratch.gate + expert * batch + x) * tl.load(scratch.gate + expert * batch + y)


@triton.jit
def number_of_cells(layout, batch):
    return tl.load(layout.number + batch - 1) + 1


@triton.jit
def read_cell(layout, scratch, item, experts, batch):
    """Return the expert of a work item, and the first position, the size and the weight of a cell's own transport.

    The size is 0 for a cell without slots, whose transport has no epsilon if no cell has any.
    """
    block: tl.constexpr = 64
    expert, x = item % experts, tl.load(layout.cells + item // experts)
    n, start, end = tl.load(layout.size + x), tl.load(layout.start + x), tl.load(layout.end + x)
    gate = scratch.gate + expert * batch
    others = tl.zeros([block], tl.float32)
    for i0 in range(start, end, block):
        i = i0 + tl.arange(0, block)
        head = tl.load(layout.cell + i, mask=i < end, other=-1) == i
        others += tl.load(gate + i, mask=head & (i != x), other=0.0)
    return expert, x, tl.where(end - start > n, n, 0), -0.5 * tl.load(gate + x) * tl.sum(others, 0)


@triton.jit
def defects_of(layout, scratch, expert, x, y, batch):
    """Return where the defects of the first cell of a slot are stored."""
    rank = tl.load(layout.number + y) - tl.load(layout.number + x) - 1
    return scratch.defects + (expert * batch + rank) * batch + x


@triton.jit
def strength(layout, scratch, epsilon, experts, RELATIVE: tl.constexpr, PROGRAMS: tl.constexpr):
    """Return epsilon as the unit of scores in base 2."""
    ln_2: tl.constexpr = 0.6931471805599453
    tiny: tl.constexpr = 1.1754943508222875e-38  # the smallest normal float32; a relative epsilon may be zero
    if RELATIVE:
        pairs = tl.load(layout.counts + 1).to(tl.float32) * experts
        epsilon = epsilon * (tl.sum(tl.load(scratch.costs + tl.arange(0, PROGRAMS)), 0) / pairs)
    return tl.maximum(epsilon * ln_2, tiny)


@triton.jit
def squared_distances(points, expert, p, q, rows, columns, batch, width, TILE: tl.constexpr):
    """Return squared distances by differences: products of points would cancel."""
    # A few features are loaded at once; a large tile has no registers for 8.
    step: tl.constexpr = 8 if TILE < 64 else 4
    lines = (width + 7) // 8 * 8
    points += expert * lines * batch
    total = tl.zeros([TILE, TILE], tl.float32)
    for r in range(0, lines, step):
        for s in tl.static_range(step):
            line = points + (r + s) * batch
            x = tl.load(line + p, mask=rows, other=0.0)
            y = tl.load(line + q, mask=columns, other=0.0)
            apart = x[:, None] - y[None, :]
            total += apart * apart
    return total


@triton.jit
def _spread(scratch, row, width, BLOCK: tl.constexpr):
    blocks = (width + 127) // 128
    i = tl.arange(0, BLOCK)
    return tl.sum(tl.load(scratch.spread + row * blocks + i, mask=i < blocks, other=0.0), 0)


@triton.jit
def _squared_distance(scratch, a, b, width, BLOCK: tl.constexpr):
    total = tl.zeros([BLOCK], tl.float32)
    for r0 in range(0, width, BLOCK):
        r = r0 + tl.arange(0, BLOCK)
        rough = _apart(scratch.mean, a * width + r, b * width + r, r < width)
        fine = _apart(scratch.rest, a * width + r, b * width + r, r < width)
        total += (rough + fine) * (rough + fine)
    return tl.sum(total, 0)


@triton.jit
def _apart(values, a, b, exists):
    return tl.load(values + a, mask=exists, other=0.0) - tl.load(values + b, mask=exists, other=0.0)


@triton.jit
def _log_mean(scores, share, AXIS: tl.constexpr):
    top = tl.max(scores, AXIS, keep_dims=True)
    return top + tl.log2(tl.sum(tl.exp2(scores - top), AXIS, keep_dims=True) * share)


@triton.jit
def _sum(matrix):
    return tl.sum(tl.sum(matrix, 1), 0)
