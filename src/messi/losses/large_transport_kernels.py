"""Entropic optimal transport of slots that fit into no tile, streamed through memory; see ``transport_kernels``."""

import triton
import triton.language as tl

from messi.losses.transport_kernels import LN_2, LOG2_E, read_slot, squared_distances, strength


@triton.jit
def solve_large(
    first, second, size, number, counts, gate, points, costs, values, weights, defects, potentials, epsilon,
    iterations, experts, batch, lines,
    RELATIVE: tl.constexpr, GRADIENT: tl.constexpr, PROGRAMS: tl.constexpr, STEP: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Solve the slots that fit into no tile: the scores lie where the weights will, and are streamed tile by tile."""
    program = tl.program_id(0)
    f = potentials + 2 * program * batch
    g = f + batch
    value = 0.0
    for item in range(program, tl.load(counts) * experts, PROGRAMS):
        expert, x, y, n, k = read_slot(item, first, second, size, experts)
        if (tl.minimum(n, k) > 1) & (tl.maximum(n, k) > TILE):
            unit = strength(epsilon, costs, counts, experts, RELATIVE, PROGRAMS)
            weight = tl.load(gate + expert * batch + x) * tl.load(gate + expert * batch + y)
            scores = weights + (expert * batch + x) * batch + y
            _store_scores(
                points + expert * lines * batch, scores, g, x, y, n, k, -LOG2_E / unit, batch, lines, STEP, TILE
            )  # fmt: skip
            tl.debug_barrier()  # here and below: what the threads of a program have stored is read by others
            for _ in range(iterations):
                _update(scores, batch, 1, g, f, n, k, TILE)
                tl.debug_barrier()
                _update(scores, 1, batch, f, g, k, n, TILE)
                tl.debug_barrier()
            value += weight * (unit * LN_2) * (_mean(f, n, TILE) + _mean(g, k, TILE))
            if GRADIENT:
                rank = tl.load(number + y) - tl.load(number + x) - 1
                _store_plan(scores, f, weight, n, k, batch, TILE)
                tl.debug_barrier()
                _store_weights(scores, defects + (expert * batch + rank) * batch + x, weight, n, k, batch, TILE)
            tl.debug_barrier()
    tl.store(values + program, value)


@triton.jit
def _store_scores(points, scores, g, x, y, n, k, factor, batch, lines, STEP: tl.constexpr, TILE: tl.constexpr):
    """Store the scores of a large slot, and zeros as the potentials of its second cell."""
    for j0 in range(0, k, TILE):
        j = j0 + tl.arange(0, TILE)
        tl.store(g + j, tl.zeros([TILE], tl.float32), mask=j < k)
        for i0 in range(0, n, TILE):
            i = i0 + tl.arange(0, TILE)
            cost = squared_distances(points, x + i, y + j, i < n, j < k, batch, lines, STEP, TILE)
            tl.store(scores + i[:, None] * batch + j[None, :], cost * factor, mask=(i < n)[:, None] & (j < k)[None, :])


@triton.jit
def _update(scores, line, step, source, target, lines, others, TILE: tl.constexpr):
    """Update the potentials of the lines of a score matrix, its rows or its columns, from those of the others."""
    for i0 in range(0, lines, TILE):
        top, total = _log_sum(scores, line, step, source, i0, lines, others, TILE)
        i = i0 + tl.arange(0, TILE)
        tl.store(target + i, -(top + tl.log2(total / others)), mask=i < lines)


@triton.jit
def _log_sum(scores, line, step, source, i0, lines, others, TILE: tl.constexpr):
    """Return for a tile of lines the maximum of scores plus potentials, and the sum of their powers relative to it."""
    i = i0 + tl.arange(0, TILE)
    top = tl.full([TILE], float("-inf"), tl.float32)
    total = tl.zeros([TILE], tl.float32)
    for j0 in range(0, others, TILE):
        j = j0 + tl.arange(0, TILE)
        exists = (i < lines)[:, None] & (j < others)[None, :]
        part = tl.load(scores + i[:, None] * line + j[None, :] * step, mask=exists, other=0.0)
        part += tl.load(source + j, mask=j < others, other=float("-inf"))[None, :]
        higher = tl.maximum(top, tl.max(part, 1))
        total = total * tl.exp2(top - higher) + tl.sum(tl.exp2(part - higher[:, None]), 1)
        top = higher
    return top, total


@triton.jit
def _mean(values, count, TILE: tl.constexpr):
    total = tl.zeros([TILE], tl.float32)
    for i0 in range(0, count, TILE):
        i = i0 + tl.arange(0, TILE)
        total += tl.load(values + i, mask=i < count, other=0.0)
    return tl.sum(total, 0) / count


@triton.jit
def _store_plan(scores, f, weight, n, k, batch, TILE: tl.constexpr):
    """Put the plan times the weight where the scores were: a softmax over each column."""
    for j0 in range(0, k, TILE):
        top, total = _log_sum(scores, 1, batch, f, j0, k, n, TILE)
        tl.debug_barrier()
        j = j0 + tl.arange(0, TILE)
        for i0 in range(0, n, TILE):
            i = i0 + tl.arange(0, TILE)
            exists = (j < k)[:, None] & (i < n)[None, :]
            place = scores + j[:, None] + i[None, :] * batch
            part = tl.load(place, mask=exists, other=0.0) + tl.load(f + i, mask=i < n, other=0.0)[None, :]
            plan = tl.exp2(part - top[:, None]) / (total * k)[:, None]
            tl.store(place, weight * plan, mask=exists)


@triton.jit
def _store_weights(plan, defects, weight, n, k, batch, TILE: tl.constexpr):
    """Take the defects of the rows from a weighted plan, and store them."""
    for i0 in range(0, n, TILE):
        i = i0 + tl.arange(0, TILE)
        mass = tl.zeros([TILE], tl.float32)
        for j0 in range(0, k, TILE):
            j = j0 + tl.arange(0, TILE)
            exists = (i < n)[:, None] & (j < k)[None, :]
            mass += tl.sum(tl.load(plan + i[:, None] * batch + j[None, :], mask=exists, other=0.0), 1)
        tl.debug_barrier()
        defect = mass - weight / n
        tl.store(defects + i, defect, mask=i < n)
        for j0 in range(0, k, TILE):
            j = j0 + tl.arange(0, TILE)
            exists = (i < n)[:, None] & (j < k)[None, :]
            place = plan + i[:, None] * batch + j[None, :]
            tl.store(place, tl.load(place, mask=exists, other=0.0) - (defect / k)[:, None], mask=exists)
