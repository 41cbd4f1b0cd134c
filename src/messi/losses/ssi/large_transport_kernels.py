"""Entropic optimal transport of larger slots, in larger tiles or through memory; see ``transport_kernels``."""

import triton
import triton.language as tl

from messi.losses.ssi.memory_kernels import layout_of, scratch_of
from messi.losses.ssi.transport_kernels import (
    defects_of,
    number_of_cells,
    read_cell,
    read_slot,
    slot_weight,
    solve_tile,
    squared_distances,
    strength,
)


@triton.jit
def solve_large(
    memory, epsilon, iterations, experts, batch, width,
    RELATIVE: tl.constexpr, GRADIENT: tl.constexpr, DEBIASED: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    """Solve the slots with a cell of more than 16 points: in the smallest tile that holds them, or through memory."""
    layout = layout_of(memory, batch)
    scratch = scratch_of(layout, experts, batch, width)
    program = tl.program_id(0)
    value = 0.0
    for item in range(program, tl.load(layout.counts) * experts, PROGRAMS):
        expert, x, y, n, k = read_slot(layout, item, experts)
        if (tl.minimum(n, k) > 1) & (tl.maximum(n, k) > 16):
            unit = strength(layout, scratch, epsilon, experts, RELATIVE, PROGRAMS)
            weight = slot_weight(scratch, expert, x, y, batch)
            value += _solve(
                layout, scratch, expert, x, y, n, k, weight, unit, iterations, batch, width, GRADIENT, False
            )  # fmt: skip
    if DEBIASED:
        for item in range(program, number_of_cells(layout, batch) * experts, PROGRAMS):
            expert, x, n, weight = read_cell(layout, scratch, item, experts, batch)
            if n > 16:
                unit = strength(layout, scratch, epsilon, experts, RELATIVE, PROGRAMS)
                value += _solve(
                    layout, scratch, expert, x, x, n, n, weight, unit, iterations, batch, width, GRADIENT, True
                )  # fmt: skip
    tl.store(scratch.parts + 2 * PROGRAMS + program, value)


@triton.jit
def _solve(
    layout, scratch, expert, x, y, n, k, weight, unit, iterations, batch, width,
    GRADIENT: tl.constexpr, OWN: tl.constexpr,
):  # fmt: skip
    larger = tl.maximum(n, k)
    value = 0.0
    if larger <= 32:
        value = solve_tile(
            layout, scratch, expert, x, y, n, k, weight, unit, iterations, batch, width, GRADIENT, OWN, 32
        )  # fmt: skip
    elif larger <= 64:
        value = solve_tile(
            layout, scratch, expert, x, y, n, k, weight, unit, iterations, batch, width, GRADIENT, OWN, 64
        )  # fmt: skip
    else:
        value = _solve_streamed(
            layout, scratch, expert, x, y, n, k, weight, unit, iterations, batch, width, GRADIENT, OWN, 64
        )  # fmt: skip
    return value


@triton.jit
def _solve_streamed(
    layout, scratch, expert, x, y, n, k, weight, unit, iterations, batch, width,
    GRADIENT: tl.constexpr, OWN: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Solve a slot of any size: the scores are stored where the weights will be, and read tile by tile."""
    scores = scratch.weights + (expert * batch + x) * batch + y
    f = scratch.potentials + 2 * tl.program_id(0) * batch
    g = f + batch
    _store_scores(scratch.points, scores, g, expert, x, y, n, k, -1.0 / unit, batch, width, TILE)
    tl.debug_barrier()  # here and below: threads read what other threads of the program have stored
    for _ in range(iterations):
        _update(scores, batch, 1, g, f, n, k, TILE)
        tl.debug_barrier()
        _update(scores, 1, batch, f, g, k, n, TILE)
        tl.debug_barrier()
    dual = _mean(f, n, TILE) + _mean(g, k, TILE)
    if GRADIENT:
        _store_plan(scores, f, weight, n, k, batch, TILE)
        tl.debug_barrier()
        if OWN:
            _store_own_weights(scores, n, batch, TILE)
        else:
            _store_weights(scores, defects_of(layout, scratch, expert, x, y, batch), weight, n, k, batch, TILE)
    tl.debug_barrier()
    return weight * unit * dual


@triton.jit
def _store_scores(points, scores, g, expert, x, y, n, k, factor, batch, width, TILE: tl.constexpr):
    """Store the scores of a large slot, and zeros as the potentials of its second cell."""
    for j0 in range(0, k, TILE):
        j = j0 + tl.arange(0, TILE)
        tl.store(g + j, tl.zeros([TILE], tl.float32), mask=j < k)
        for i0 in range(0, n, TILE):
            i = i0 + tl.arange(0, TILE)
            cost = squared_distances(points, expert, x + i, y + j, i < n, j < k, batch, width, TILE)
            tl.store(scores + i[:, None] * batch + j[None, :], cost * factor, mask=(i < n)[:, None] & (j < k)[None, :])


@triton.jit
def _update(scores, line, step, source, target, lines, others, TILE: tl.constexpr):
    """Update the potentials of one axis of a score matrix, ``lines`` rows or columns, from those of the other axis."""
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
    """Overwrite the scores with the plan times the weight: a softmax over each column."""
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
    """Subtract the defects of the rows from a weighted plan, and store them."""
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


@triton.jit
def _store_own_weights(plan, n, batch, TILE: tl.constexpr):
    """Add the transpose of a weighted plan to it, above the diagonal; nothing below is overwritten."""
    for i0 in range(0, n, TILE):
        i = i0 + tl.arange(0, TILE)
        for j0 in range(i0, n, TILE):
            j = j0 + tl.arange(0, TILE)
            above = (i[:, None] < j[None, :]) & (j < n)[None, :]
            place = plan + i[:, None] * batch + j[None, :]
            mirrored = plan + j[None, :] * batch + i[:, None]
            tl.store(place, tl.load(place, mask=above) + tl.load(mirrored, mask=above), mask=above)
