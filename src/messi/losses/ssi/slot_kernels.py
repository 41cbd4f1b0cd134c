"""Find the slots of a batch on the GPU; the launch sizes depend only on the shapes of the batch.

The examples are sorted by (class, domain); a slot is a pair of cells of one class, the first before the second. The
results are stored in the memory that ``memory_kernels`` describes.
Legend: M experts, B examples, R features.
"""

import triton
import triton.language as tl
from torch import Tensor

from messi.losses.ssi.memory_kernels import layout_of, scratch_of


def find(labels: Tensor, domains: Tensor, memory: Tensor) -> None:
    """Sort a batch by cell and list its slots: labels [B], domains [B]."""
    batch = len(labels)
    block = 1 << (batch - 1).bit_length()
    _find[1,](labels.contiguous(), domains.contiguous(), memory, batch, BLOCK=block, num_warps=8)


def describe(
    features: Tensor, routing: Tensor, memory: Tensor, *, slot_weight: str, sharpness: float, centre: bool
) -> None:
    """Compute the gates of all cells, and their points, either centred with means and spreads or unchanged."""
    experts, batch, width = features.shape
    _describe[experts, batch, (width + 127) // 128](
        features, routing.contiguous(), memory, sharpness, experts, batch, width, GATE=slot_weight, CENTRE=centre
    )  # fmt: skip


@triton.jit
def _find(labels, domains, memory, batch, BLOCK: tl.constexpr):
    """Sort the examples and list the slots in one program, because each position depends on all before it."""
    layout = layout_of(memory, batch)
    place = tl.arange(0, BLOCK)
    inside = place < batch
    _store_keys(labels, domains, layout.key, batch, BLOCK)
    tl.debug_barrier()  # here and below: threads read what other threads have stored
    for i0 in range(0, batch, 64):
        _sort_tile(layout.key, layout.order, i0, batch)
    tl.debug_barrier()
    key = _key_at(layout, place, inside)
    last = _key_at(layout, place - 1, inside & (place > 0))
    opens = inside & ((place == 0) | (key // batch != last // batch))
    head = inside & ((place == 0) | (key != last))
    its_class = tl.cumsum(opens.to(tl.int32), 0) - 1
    number = tl.cumsum(head.to(tl.int32), 0) - 1
    tl.store(layout.number + place, number, mask=inside)
    tl.store(layout.classes + its_class, place, mask=opens)
    tl.store(layout.cells + number, place, mask=head)
    tl.store(layout.classes + tl.sum(opens.to(tl.int32), 0), batch)
    tl.store(layout.cells + tl.sum(head.to(tl.int32), 0), batch)
    tl.debug_barrier()
    cell = tl.load(layout.cells + number, mask=inside, other=0)
    size = tl.load(layout.cells + number + 1, mask=inside, other=0) - cell
    start = tl.load(layout.classes + its_class, mask=inside, other=0)
    end = tl.load(layout.classes + its_class + 1, mask=inside, other=0)
    later = tl.load(layout.number + end - 1, mask=inside, other=0) - number
    tl.store(layout.cell + place, cell, mask=inside)
    tl.store(layout.size + place, size, mask=inside)
    tl.store(layout.start + place, start, mask=inside)
    tl.store(layout.end + place, end, mask=inside)
    tl.store(layout.later + place, later, mask=inside)
    slots = tl.where(head, later, 0)
    before = tl.cumsum(slots, 0) - slots
    for k in range(tl.max(slots, 0)):
        exists = k < slots
        tl.store(layout.first + before + k, place, mask=exists)
        other = tl.load(layout.cells + number + 1 + k, mask=exists, other=0)
        tl.store(layout.second + before + k, other, mask=exists)
    tl.store(layout.counts, tl.sum(slots, 0))
    tl.store(layout.counts + 1, tl.sum(tl.where(inside, end - start - size, 0), 0) // 2)


@triton.jit
def _store_keys(labels, domains, key, batch, BLOCK: tl.constexpr):
    """Store ``B class + domain`` of each example; classes and domains are renumbered if they do not fit."""
    i = tl.arange(0, BLOCK)
    example = tl.where(i < batch, i, 0)
    label, domain = tl.load(labels + example).to(tl.int64), tl.load(domains + example).to(tl.int64)
    label_0, domain_0 = tl.min(label, 0), tl.min(domain, 0)
    classes, span = tl.max(label, 0) - label_0, tl.max(domain, 0) - domain_0  # negative if 64 bits are too few
    if (classes >= 0) & (classes < 2**31 // BLOCK) & (span >= 0) & (span < batch):
        tl.store(key + i, ((label - label_0) * batch + domain - domain_0).to(tl.int32), mask=i < batch)
    else:
        for i0 in range(0, batch, 64):
            _rank_tile(labels, domains, key, i0, batch)


@triton.jit
def _rank_tile(labels, domains, key, i0, batch):
    """Store the keys of 64 examples; a class or domain is numbered by how many lower values there are."""
    i = i0 + tl.arange(0, 64)
    label, domain = _integer(labels, i, batch), _integer(domains, i, batch)
    lower_classes = tl.zeros([64, 64], tl.int32)
    lower_domains = tl.zeros([64, 64], tl.int32)
    for j0 in range(0, batch, 64):
        j = j0 + tl.arange(0, 64)
        lower_classes += (_integer(labels, j, batch)[None, :] < label[:, None]).to(tl.int32)
        lower_domains += (_integer(domains, j, batch)[None, :] < domain[:, None]).to(tl.int32)
    tl.store(key + i, tl.sum(lower_classes, 1) * batch + tl.sum(lower_domains, 1), mask=i < batch)


@triton.jit
def _sort_tile(key, order, i0, batch):
    """Store 64 examples at their sorted positions, which are the numbers of examples before them."""
    i = i0 + tl.arange(0, 64)
    mine = _integer(key, i, batch) * batch + i
    before = tl.zeros([64, 64], tl.int32)
    for j0 in range(0, batch, 64):
        j = j0 + tl.arange(0, 64)
        other = tl.where(j < batch, _integer(key, j, batch) * batch + j, 2**63 - 1)
        before -= ((other[None, :] - mine[:, None]) >> 63).to(tl.int32)  # the sign bit is faster than a comparison
    tl.store(order + tl.sum(before, 1), i, mask=i < batch)


@triton.jit
def _integer(values, i, batch):
    """Return 64-bit integers; the largest one outside the batch."""
    return tl.where(i < batch, tl.load(values + i, mask=i < batch, other=0).to(tl.int64), 2**63 - 1)


@triton.jit
def _key_at(layout, place, exists):
    return tl.load(layout.key + tl.load(layout.order + place, mask=exists, other=0), mask=exists, other=0)


@triton.jit
def _describe(
    features, routing, memory, sharpness, experts, batch, width, GATE: tl.constexpr, CENTRE: tl.constexpr
):  # fmt: skip
    """Describe a block of features of a cell; programs of positions at which no cell begins do nothing."""
    rows: tl.constexpr = 16
    columns: tl.constexpr = 128
    layout = layout_of(memory, batch)
    expert, place, block = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    if tl.load(layout.cell + place) == place:
        scratch = scratch_of(layout, experts, batch, width)
        n = tl.load(layout.size + place)
        order = layout.order + place
        row = expert * batch + place
        if block == 0:
            mass = tl.zeros([rows], tl.float32)
            for i0 in range(0, n, rows):
                i = i0 + tl.arange(0, rows)
                example = tl.load(order + i, mask=i < n, other=0)
                mass += tl.load(routing + example * experts + expert, mask=i < n, other=0).to(tl.float32)
            tl.store(scratch.gate + row, _gate(tl.sum(mass, 0) / n, sharpness, experts, GATE))
        r = block * columns + tl.arange(0, columns)
        middle = tl.zeros([columns], tl.float32)
        rest = tl.zeros([columns], tl.float32)
        features += expert * batch * width
        if CENTRE:
            middle = _mean(features, order, middle, rest, n, r, width, rows)
            rest = _mean(features, order, middle, rest, n, r, width, rows)
            tl.store(scratch.mean + row * width + r, middle, mask=r < width)
            tl.store(scratch.rest + row * width + r, rest, mask=r < width)
        squares = tl.zeros([columns], tl.float32)
        lines = (width + 7) // 8 * 8
        for i0 in range(0, n, rows):
            i = i0 + tl.arange(0, rows)
            x = _less(features, order, middle, rest, n, i, r, width)
            squares += tl.sum(x * x, 0)
            target = scratch.points + (expert * lines + r[None, :]) * batch + place + i[:, None]
            tl.store(target, x, mask=(i < n)[:, None] & (r < lines)[None, :])
        if CENTRE:
            tl.store(scratch.spread + row * tl.num_programs(2) + block, tl.sum(squares, 0) / n)


@triton.jit
def _gate(mass, sharpness, experts, GATE: tl.constexpr):
    if GATE == "centred":
        mass = experts * mass - 1.0
    if GATE != "product":
        mass = tl.sigmoid(sharpness * mass)
    return mass


@triton.jit
def _mean(features, order, middle, rest, n, r, width, ROWS: tl.constexpr):
    total = tl.zeros_like(middle)
    for i0 in range(0, n, ROWS):
        total += tl.sum(_less(features, order, middle, rest, n, i0 + tl.arange(0, ROWS), r, width), 0)
    return total / n


@triton.jit
def _less(features, order, middle, rest, n, i, r, width):
    """Return rows of a cell minus two vectors, one after the other: the second corrects the rounding of the first."""
    exists = (i < n)[:, None] & (r < width)[None, :]
    example = tl.load(order + i, mask=i < n, other=0)
    x = tl.load(features + example[:, None] * width + r[None, :], mask=exists, other=0).to(tl.float32)
    return tl.where(exists, x - middle[None, :] - rest[None, :], 0.0)
