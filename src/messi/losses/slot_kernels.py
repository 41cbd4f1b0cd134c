"""Which examples are compared with which, found on the GPU: the launch sizes follow from the shapes of the batch alone.

The examples are put in the order of (class, domain), so that a cell and a class are ranges of sorted places; a cell is
named by its first place. A slot is a pair of cells of one class, the first before the second.
Legend: M experts, B examples, R features.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

_TILE = 32
STEP = 8
"""Features that the loops over all features take at a time; where the last are missing, there are zeros."""


class Layout(NamedTuple):
    """A batch in the order of its cells; int32 everywhere."""

    order: Tensor
    """[B] which example is at each sorted place."""
    cell: Tensor
    """[B] first place of the cell that each place belongs to."""
    size: Tensor
    """[B] number of examples in that cell."""
    start: Tensor
    """[B] first place of the class."""
    end: Tensor
    """[B] place after the last one of the class."""
    number: Tensor
    """[B] which one of all cells this is."""
    later: Tensor
    """[B] how many cells of the class come after this one."""
    first: Tensor
    """[B (B - 1) / 2] first cell of each slot, as far as there are slots."""
    second: Tensor
    """[B (B - 1) / 2] second cell of each slot."""
    counts: Tensor
    """[2] number of slots, and of pairs of examples in all slots."""


class Cells(NamedTuple):
    """What a discrepancy needs of each expert and cell, at the first place of the cell."""

    gate: Tensor
    """[M, B] sigmoid of the routing mass."""
    spread: Tensor
    """[M, B, C] mean squared distance from the mean, in C blocks of features."""
    mean: Tensor
    """[2, M, B, R] the mean as rounded, and what the rounding left: together more accurate than one number can be."""
    points: Tensor
    """[M, R', B] features at each sorted place, less their cell's mean if asked for; zeros up to R', a multiple."""


def find(labels: Tensor, domains: Tensor) -> Layout:
    """Put a batch in the order of its cells and list its slots: labels [B], domains [B]."""
    batch = len(labels)
    order, cell, size, start, end, number, later, starts = labels.new_empty((8, batch), dtype=torch.int32).unbind()
    first, second = labels.new_empty((2, batch * (batch - 1) // 2), dtype=torch.int32).unbind()
    counts = labels.new_empty(2, dtype=torch.int32)
    grid = (triton.cdiv(batch, _TILE),)
    _sort[grid](labels.contiguous(), domains.contiguous(), order, cell, size, start, end, batch, TILE=_TILE)
    block = triton.next_power_of_2(batch)
    _list[1,](cell, size, start, end, number, later, starts, first, second, counts, batch, BLOCK=block, num_warps=8)
    return Layout(order, cell, size, start, end, number, later, first, second, counts)


def describe(features: Tensor, routing: Tensor, layout: Layout, *, sharpness: float, centre: bool) -> Cells:
    """Return the gates of all cells, and their points centred, with means and spreads, or as they are."""
    experts, batch, width = features.shape
    lines = triton.cdiv(width, STEP) * STEP
    columns = min(128, triton.next_power_of_2(lines))
    blocks = triton.cdiv(lines, columns)
    gate = features.new_empty((experts, batch), dtype=torch.float32)
    spread = features.new_empty((experts, batch, blocks), dtype=torch.float32)
    mean = features.new_empty((2, experts, batch, width if centre else 0), dtype=torch.float32)
    points = features.new_empty((experts, lines, batch), dtype=torch.float32)
    _describe[experts, batch, blocks](
        features, routing.contiguous(), layout.order, layout.cell, layout.size,
        gate, spread, mean, points, sharpness, experts, batch, width, lines, CENTRE=centre, ROWS=16, COLUMNS=columns,
    )  # fmt: skip
    return Cells(gate, spread, mean, points)


@triton.jit
def _sort(labels, domains, order, cell, size, start, end, batch, TILE: tl.constexpr):
    """Count for each example how many come before it: no sum depends on another, so many programs share the work."""
    i = tl.program_id(0) * TILE + tl.arange(0, TILE)
    inside = i < batch
    label, domain = _key(labels, domains, i, inside)
    classes_before = tl.zeros([TILE], tl.int32)
    class_size = tl.zeros([TILE], tl.int32)
    cells_before = tl.zeros([TILE], tl.int32)
    cell_size = tl.zeros([TILE], tl.int32)
    twins_before = tl.zeros([TILE], tl.int32)
    for j0 in range(0, batch, TILE):
        j = j0 + tl.arange(0, TILE)
        exists = (j < batch)[None, :]
        other_label, other_domain = _key(labels, domains, j, j < batch)
        lower = (other_label[None, :] < label[:, None]) & exists
        same = (other_label[None, :] == label[:, None]) & exists
        twins = same & (other_domain[None, :] == domain[:, None])
        classes_before += tl.sum(lower.to(tl.int32), 1)
        class_size += tl.sum(same.to(tl.int32), 1)
        cells_before += tl.sum((same & (other_domain[None, :] < domain[:, None])).to(tl.int32), 1)
        cell_size += tl.sum(twins.to(tl.int32), 1)
        twins_before += tl.sum((twins & (j[None, :] < i[:, None])).to(tl.int32), 1)
    place = classes_before + cells_before + twins_before
    tl.store(order + place, i, mask=inside)
    tl.store(cell + place, classes_before + cells_before, mask=inside)
    tl.store(size + place, cell_size, mask=inside)
    tl.store(start + place, classes_before, mask=inside)
    tl.store(end + place, classes_before + class_size, mask=inside)


@triton.jit
def _key(labels, domains, i, inside):
    label = tl.load(labels + i, mask=inside, other=0).to(tl.int64)
    domain = tl.load(domains + i, mask=inside, other=0).to(tl.int64)
    return label, domain


@triton.jit
def _list(
    cell, size, start, end, number, later, starts, first, second, counts, batch, BLOCK: tl.constexpr
):  # fmt: skip
    """Number the cells and list the slots, in one program because each slot's place depends on all before it."""
    place = tl.arange(0, BLOCK)
    inside = place < batch
    head = inside & (tl.load(cell + place, mask=inside, other=-1) == place)
    mine = tl.cumsum(head.to(tl.int32), 0) - 1
    tl.store(number + place, mine, mask=inside)
    tl.store(starts + mine, place, mask=head)
    tl.debug_barrier()  # what the threads have stored is read by others
    class_end = tl.load(end + place, mask=inside, other=1)
    follow = tl.load(number + class_end - 1, mask=inside, other=0) - mine
    tl.store(later + place, follow, mask=inside)
    slots = tl.where(head, follow, 0)
    before = tl.cumsum(slots, 0) - slots
    for k in range(tl.max(slots, 0)):
        exists = k < slots
        tl.store(first + before + k, place, mask=exists)
        tl.store(second + before + k, tl.load(starts + mine + 1 + k, mask=exists, other=0), mask=exists)
    tl.store(counts, tl.sum(slots, 0))
    class_start = tl.load(start + place, mask=inside, other=1)
    others = class_end - class_start - tl.load(size + place, mask=inside, other=0)
    tl.store(counts + 1, tl.sum(others, 0) // 2)


@triton.jit
def _describe(
    features, routing, order, cell, size, gate, spread, mean, points, sharpness, experts, batch, width, lines,
    CENTRE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Describe a block of features of a cell; the programs of places at which no cell begins have nothing to do."""
    expert, place, block = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    if tl.load(cell + place) == place:
        n = tl.load(size + place)
        row = expert * batch + place
        if block == 0:
            mass = tl.zeros([ROWS], tl.float32)
            for i0 in range(0, n, ROWS):
                i = i0 + tl.arange(0, ROWS)
                example = tl.load(order + place + i, mask=i < n, other=0)
                mass += tl.load(routing + example * experts + expert, mask=i < n, other=0).to(tl.float32)
            tl.store(gate + row, tl.sigmoid(sharpness * (tl.sum(mass, 0) / n)))
        r = block * COLUMNS + tl.arange(0, COLUMNS)
        middle = tl.zeros([COLUMNS], tl.float32)
        rest = tl.zeros([COLUMNS], tl.float32)
        if CENTRE:
            middle = _mean(features, order, middle, rest, expert, place, n, r, batch, width, ROWS)
            rest = _mean(features, order, middle, rest, expert, place, n, r, batch, width, ROWS)
            tl.store(mean + row * width + r, middle, mask=r < width)
            tl.store(mean + (experts * batch + row) * width + r, rest, mask=r < width)
        squares = tl.zeros([COLUMNS], tl.float32)
        for i0 in range(0, n, ROWS):
            i = i0 + tl.arange(0, ROWS)
            x = _less(features, order, middle, rest, expert, place, n, i, r, batch, width)
            squares += tl.sum(x * x, 0)
            target = points + (expert * lines + r[None, :]) * batch + place + i[:, None]
            tl.store(target, x, mask=(i < n)[:, None] & (r < lines)[None, :])
        tl.store(spread + row * tl.num_programs(2) + block, tl.sum(squares, 0) / n)


@triton.jit
def _mean(features, order, middle, rest, expert, place, n, r, batch, width, ROWS: tl.constexpr):
    total = tl.zeros_like(middle)
    for i0 in range(0, n, ROWS):
        i = i0 + tl.arange(0, ROWS)
        total += tl.sum(_less(features, order, middle, rest, expert, place, n, i, r, batch, width), 0)
    return total / n


@triton.jit
def _less(features, order, middle, rest, expert, place, n, i, r, batch, width):
    """Return rows of a cell less two vectors, one after the other: what one leaves is small enough for the other."""
    exists = (i < n)[:, None] & (r < width)[None, :]
    example = tl.load(order + place + i, mask=i < n, other=0)
    source = features + (expert * batch + example[:, None]) * width + r[None, :]
    x = tl.load(source, mask=exists, other=0).to(tl.float32)
    return tl.where(exists, x - middle[None, :] - rest[None, :], 0.0)
