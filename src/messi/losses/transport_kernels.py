"""Entropic optimal transport of all slots on the GPU; ``messi.discrepancy.sinkhorn`` says what is computed.

A slot whose cells fit into a tile is solved in registers by one program; a larger one goes through memory. Scores are
in base 2, and logarithms of means take the place of those of sums, so that no logarithm of a size is added and rounded.

The gradient is left as a matrix over the sorted places: at place p it is ``2 sum_q weights[p, q] (x_p - x_q)``. With
the plan g of a slot of weight w, whose cells have n and k points, and the defects ``d_p = sum_q g[p, q] - 1/n`` that
the last update, one of the columns, leaves in the rows:

    weights[p, q] = w (g[p, q] - d_p / k)   between the cells
    weights[p, q] = (D_p + D_q) / n         within a cell,  D_p = sum of w d_p over the slots whose first cell it is

The first is written here, above the diagonal, and the summands of D_p; ``pull_kernels`` does the rest.
"""

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)
TINY = tl.constexpr(1.1754943508222875e-38)
"""The smallest normal float32: a cost of zero everywhere makes a relative epsilon zero."""


@triton.jit
def compare_means(
    first, second, size, number, counts, gate, spread, mean, costs, values, weights, defects, experts, batch, width,
    blocks, GRADIENT: tl.constexpr, PROGRAMS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Add up the mean costs of all slots, and the part of their values that is a distance of means.

    A cell of one example leaves nothing else to find: the value is the mean cost, and the plan is uniform.
    """
    program = tl.program_id(0)
    cost = 0.0
    value = 0.0
    for item in range(program, tl.load(counts) * experts, PROGRAMS):
        expert, x, y, n, k = read_slot(item, first, second, size, experts)
        moved = _squared_distance(mean, expert, x, y, experts, batch, width, COLUMNS)
        mean_cost = moved + _spread(spread, expert * batch + x, blocks, COLUMNS)
        mean_cost += _spread(spread, expert * batch + y, blocks, COLUMNS)
        weight = tl.load(gate + expert * batch + x) * tl.load(gate + expert * batch + y)
        single = tl.minimum(n, k) == 1
        cost += mean_cost * (n * k)
        value += weight * tl.where(single, mean_cost, moved)
        if GRADIENT:
            if single:
                rank = tl.load(number + y) - tl.load(number + x) - 1
                for i0 in range(0, n * k, COLUMNS):
                    i = i0 + tl.arange(0, COLUMNS)
                    p, q = tl.where(n > 1, x + i, x), tl.where(k > 1, y + i, y)
                    tl.store(weights + (expert * batch + p) * batch + q, weight / (n * k), mask=i < n * k)
                    tl.store(defects + (expert * batch + rank) * batch + p, 0.0, mask=i < n * k)
    tl.store(costs + program, cost)
    tl.store(values + program, value)


@triton.jit
def solve(
    first, second, size, number, counts, gate, points, costs, values, weights, defects, epsilon, iterations,
    experts, batch, lines,
    RELATIVE: tl.constexpr, GRADIENT: tl.constexpr, PROGRAMS: tl.constexpr, ABOVE: tl.constexpr, STEP: tl.constexpr,
    TILE: tl.constexpr,
):  # fmt: skip
    """Solve the slots whose larger cell has more than ``ABOVE`` points, up to ``TILE``, by Sinkhorn in registers."""
    program = tl.program_id(0)
    value = 0.0
    for item in range(program, tl.load(counts) * experts, PROGRAMS):
        expert, x, y, n, k = read_slot(item, first, second, size, experts)
        larger = tl.maximum(n, k)
        if (tl.minimum(n, k) > 1) & (larger > ABOVE) & (larger <= TILE):
            unit = strength(epsilon, costs, counts, experts, RELATIVE, PROGRAMS)
            weight = tl.load(gate + expert * batch + x) * tl.load(gate + expert * batch + y)
            i = tl.arange(0, TILE)
            cost = squared_distances(
                points + expert * lines * batch, x + i, y + i, i < n, i < k, batch, lines, STEP, TILE
            )  # fmt: skip
            rows, columns = i[:, None] < n, i[None, :] < k
            # A line outside its cell keeps finite scores, so that it has a maximum; the lines across it leave it out.
            scores = cost * (-LOG2_E / unit)
            by_row = tl.where(columns, scores, float("-inf"))
            by_column = tl.where(rows, scores, float("-inf"))
            # Potentials are a column and a row of the tile, and only the row is carried from round to round: then none
            # has to be moved between threads.
            g = tl.zeros([1, TILE], tl.float32)
            for _ in range(iterations - 1):
                g = -_log_mean(by_column - _log_mean(by_row + g, 1.0 / k, 1), 1.0 / n, 0)
            f = -_log_mean(by_row + g, 1.0 / k, 1)
            g = -_log_mean(by_column + f, 1.0 / n, 0)
            dual = _sum(tl.where(rows, f, 0.0)) / n + _sum(tl.where(columns, g, 0.0)) / k
            value += weight * (unit * LN_2) * dual
            if GRADIENT:
                # A softmax over the columns: their mass is exact even where the scores have lost their precision.
                by_column += f
                plan = tl.exp2(by_column - tl.max(by_column, 0, keep_dims=True))
                plan = tl.where(columns, plan / (tl.sum(plan, 0, keep_dims=True) * k), 0.0)
                defect = weight * (tl.sum(plan, 1, keep_dims=True) - 1.0 / n)
                target = weights + (expert * batch + x + i[:, None]) * batch + y + i[None, :]
                tl.store(target, weight * plan - defect / k, mask=rows & columns)
                rank = tl.load(number + y) - tl.load(number + x) - 1
                tl.store(defects + (expert * batch + rank) * batch + x + i[:, None], defect, mask=rows)
    tl.store(values + program, value)


@triton.jit
def read_slot(item, first, second, size, experts):
    """Return the expert of a work item, and the first places and the sizes of its two cells."""
    x, y = tl.load(first + item // experts), tl.load(second + item // experts)
    return item % experts, x, y, tl.load(size + x), tl.load(size + y)


@triton.jit
def _spread(spread, row, blocks, COLUMNS: tl.constexpr):
    i = tl.arange(0, COLUMNS)
    return tl.sum(tl.load(spread + row * blocks + i, mask=i < blocks, other=0.0), 0)


@triton.jit
def _squared_distance(mean, expert, x, y, experts, batch, width, COLUMNS: tl.constexpr):
    rest = mean + experts * batch * width
    total = tl.zeros([COLUMNS], tl.float32)
    for r0 in range(0, width, COLUMNS):
        r = r0 + tl.arange(0, COLUMNS)
        a, b = (expert * batch + x) * width + r, (expert * batch + y) * width + r
        rough = tl.load(mean + a, mask=r < width, other=0.0) - tl.load(mean + b, mask=r < width, other=0.0)
        fine = tl.load(rest + a, mask=r < width, other=0.0) - tl.load(rest + b, mask=r < width, other=0.0)
        total += (rough + fine) * (rough + fine)
    return tl.sum(total, 0)


@triton.jit
def strength(epsilon, costs, counts, experts, RELATIVE: tl.constexpr, PROGRAMS: tl.constexpr):
    if RELATIVE:
        pairs = tl.load(counts + 1).to(tl.float32) * experts
        epsilon = epsilon * (tl.sum(tl.load(costs + tl.arange(0, PROGRAMS)), 0) / pairs)
    return tl.maximum(epsilon, TINY)


@triton.jit
def squared_distances(
    points, p, q, rows, columns, batch, lines, STEP: tl.constexpr, TILE: tl.constexpr
):  # fmt: skip
    """Return squared distances by differences: products of points would cancel."""
    total = tl.zeros([TILE, TILE], tl.float32)
    for r in range(0, lines, STEP):
        for step in tl.static_range(STEP):
            line = points + (r + step) * batch
            x = tl.load(line + p, mask=rows, other=0.0)
            y = tl.load(line + q, mask=columns, other=0.0)
            apart = x[:, None] - y[None, :]
            total += apart * apart
    return total


@triton.jit
def _log_mean(scores, share, AXIS: tl.constexpr):
    top = tl.max(scores, AXIS, keep_dims=True)
    return top + tl.log2(tl.sum(tl.exp2(scores - top), AXIS, keep_dims=True) * share)


@triton.jit
def _sum(matrix):
    return tl.sum(tl.sum(matrix, 1), 0)
