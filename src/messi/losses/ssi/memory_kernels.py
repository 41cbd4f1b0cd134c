"""The memory through which the kernels of the loss exchange results: one block, passed as one argument.

It contains int32 first, then float32. The offsets depend only on the shapes. Kernels compute them with pointers and the
host with numbers: ``layout_of.fn(0, batch)`` returns offsets in words, otherwise the result is pointers.
Legend: M experts, B examples, R features, C blocks of 128 features, P programs.
"""

from functools import cache
from typing import Any, NamedTuple

import triton
import triton.language as tl


class Layout(NamedTuple):
    """A batch sorted by cell: a cell and a class are ranges of positions, and a cell is identified by its first."""

    key: Any
    """[B] B class + domain of each example, which sorts them by cell."""
    order: Any
    """[B] example at each sorted position."""
    cell: Any
    """[B] first position of the cell that each position belongs to."""
    size: Any
    """[B] number of examples in that cell."""
    start: Any
    """[B] first position of the class."""
    end: Any
    """[B] position after the last one of the class."""
    number: Any
    """[B] index of the cell among all cells."""
    later: Any
    """[B] number of cells of the class after this one."""
    cells: Any
    """[B + 1] first position of each cell, then B."""
    classes: Any
    """[B + 1] first position of each class, then B."""
    counts: Any
    """[2] number of slots, and of pairs of examples in all slots."""
    first: Any
    """[B (B - 1) / 2] first cell of each slot, for existing slots."""
    second: Any
    """[B (B - 1) / 2] second cell of each slot."""
    behind: Any
    """End of the layout."""


class Scratch(NamedTuple):
    """Results for a batch in sorted order; the results of a cell are stored at its first position."""

    gate: Any
    """[M, B] gate of each cell."""
    spread: Any
    """[M, B, C] mean squared distance from the mean of each cell, in blocks of features."""
    mean: Any
    """[M, B, R] mean of each cell as rounded."""
    rest: Any
    """[M, B, R] rounding error of that mean; the sum of both is more accurate than a single number can be."""
    points: Any
    """[M, R', B] features, centred by their cell's mean if requested; zeros from R up to R', a multiple of 8."""
    costs: Any
    """[P] partial sums of the costs of all pairs of examples in slots."""
    parts: Any
    """Partial sums of the values of all slots: [up to 3, P] for transport, one per 16 x 16 examples for MMD."""
    totals: Any
    """Partial sums of the weights of all slots: [P] for transport, one per expert and 16 examples for MMD."""
    potentials: Any
    """[P, 2, B] potentials of the slot that a program solves, if it fits into no tile."""
    weights: Any
    """[M, B, B] weights between positions, above the diagonal."""
    defects: Any
    """[M, B, B] defects (see ``transport_kernels``) by position, in the slots with each later cell of the class."""
    behind: Any
    """End of the scratch memory."""


@cache
def words(experts: int, batch: int, width: int) -> int:
    """Return how many words of 32 bits the memory of a batch has."""
    end: int = _scratch.fn(layout_of.fn(0, batch).behind, experts, batch, width).behind
    return end


@triton.jit
def layout_of(memory, batch):
    row = (batch + 32) // 32 * 32
    half = row * batch // 2
    first = memory + 11 * row
    return Layout(
        key=memory,
        order=memory + row,
        cell=memory + 2 * row,
        size=memory + 3 * row,
        start=memory + 4 * row,
        end=memory + 5 * row,
        number=memory + 6 * row,
        later=memory + 7 * row,
        cells=memory + 8 * row,
        classes=memory + 9 * row,
        counts=memory + 10 * row,
        first=first,
        second=first + half,
        behind=first + 2 * half,
    )


@triton.jit
def scratch_of(layout, experts, batch, width):
    return _scratch(layout.behind.to(tl.pointer_type(tl.float32)), experts, batch, width)


@triton.jit
def _scratch(gate, experts, batch, width):
    """Each part begins at a multiple of 32, and its size fits into 32 bits; at most 512 programs, tiles of 16."""
    rows = (experts * batch + 31) // 32 * 32
    spread = gate + rows
    mean = spread + rows * ((width + 127) // 128)
    rest = mean + rows * width
    points = rest + rows * width
    costs = points + rows * ((width + 7) // 8 * 8)
    parts = costs + 512
    totals = parts + 3 * 512 + rows * ((batch + 15) // 16)
    potentials = totals + 512 + rows
    weights = potentials + 2 * 512 * batch
    defects = weights + rows * batch
    behind = defects + rows * batch
    return Scratch(gate, spread, mean, rest, points, costs, parts, totals, potentials, weights, defects, behind)
