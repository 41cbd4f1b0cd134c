"""The tokens that chose an expert as rows, with shapes that do not depend on the choices.

The chosen pairs of token and expert are rows, ordered by expert. The rows of an expert are padded with zeros to whole
tiles, so a tile has one expert. Memory is reserved for the largest possible number of rows; tiles beyond those in use
are skipped on the device, and nothing waits for it. Sums have a fixed order, so the same input gives the same bits.
Legend: N tokens, E experts, R rows, W width, K chosen experts of a token.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE = 128
"""Rows of a tile."""
_ROWS = 4


class Plan(NamedTuple):
    """Which row belongs to which token and expert."""

    places: Tensor
    """[N, E] the row of a pair, -1 where the expert was not chosen."""
    tokens: Tensor
    """[R] the token of a row, -1 for padding."""
    experts: Tensor
    """[R / TILE] the expert of a tile, -1 for tiles that are not in use."""
    bounds: Tensor
    """[E + 1] where the rows of each expert begin, and where the last ones end."""


def plan(chosen: Tensor, most: int) -> Plan:
    """Order the pairs in ``chosen`` [N, E]; no token has more than ``most`` experts."""
    number, experts = chosen.shape
    tiles = triton.cdiv(number * most, TILE) + experts
    numbers = torch.full((tiles * (TILE + 1),), -1, dtype=torch.int32, device=chosen.device)
    tokens, of_tiles = numbers.split([tiles * TILE, tiles])
    places = torch.empty(number, experts, dtype=torch.int32, device=chosen.device)
    bounds = torch.empty(experts + 1, dtype=torch.int32, device=chosen.device)
    with torch.cuda.device_of(chosen):
        _plan[(experts,)](
            chosen.contiguous().view(torch.int8), places, tokens, of_tiles, bounds, number, experts,
            TILE=TILE, PADDED=triton.next_power_of_2(experts), TILES=triton.next_power_of_2(tiles), BLOCK=1024,
            num_warps=8,
        )  # fmt: skip
    return Plan(places, tokens, of_tiles, bounds)


def gather(tokens: Tensor, where: Plan, dtype: torch.dtype) -> Tensor:
    """Return the token of every row, zero for padding: [N, W] -> [R, W]."""
    rows, width = len(where.tokens), tokens.shape[1]
    result = torch.empty(rows, width, dtype=dtype, device=tokens.device)
    with torch.cuda.device_of(tokens):
        _gather[(rows // _ROWS,)](
            tokens, where.tokens, where.experts, result, width,
            TILE=TILE, ROWS=_ROWS, BLOCK=triton.next_power_of_2(width),
        )  # fmt: skip
    return result


def mix(rows: Tensor, gates: Tensor | None, where: Plan, dtype: torch.dtype) -> Tensor:
    """Return the sum over the rows of each token, weighted by gates [N, E] if there are any: [R, W] -> [N, W]."""
    (number, experts), width = where.places.shape, rows.shape[1]
    result = torch.empty(number, width, dtype=dtype, device=rows.device)
    with torch.cuda.device_of(rows):
        _mix[(triton.cdiv(number, _ROWS),)](
            rows, gates, where.places, result, number, width, experts,
            GATED=gates is not None, ROWS=_ROWS, BLOCK=triton.next_power_of_2(width),
        )  # fmt: skip
    return result


def mix_backward(grad: Tensor, rows: Tensor, gates: Tensor, where: Plan) -> tuple[Tensor, Tensor]:
    """Return the gradients of the rows, zero for padding, and of the gates, zero for experts that were not chosen."""
    row_grad, gate_grad, width = torch.empty_like(rows), torch.zeros_like(gates), rows.shape[1]
    with torch.cuda.device_of(rows):
        _mix_backward[(len(rows) // _ROWS,)](
            grad, rows, gates, where.tokens, where.experts, row_grad, gate_grad, width, gates.shape[1],
            TILE=TILE, ROWS=_ROWS, BLOCK=triton.next_power_of_2(width),
        )  # fmt: skip
    return row_grad, gate_grad


def products(rows: Tensor, places: Tensor) -> Tensor:
    """Return the inner products of the rows of each token: [R, W], [N, K] -> [N, K, K]; a place of -1 is a zero row."""
    number, most = places.shape
    result = torch.empty(number, most, most, device=rows.device)
    with torch.cuda.device_of(rows):
        _products[(triton.cdiv(number, _ROWS),)](
            rows, places, result, number, rows.shape[1],
            MOST=most, ROWS=_ROWS, BLOCK=triton.next_power_of_2(rows.shape[1]),
        )  # fmt: skip
    return result


def products_backward(grad: Tensor, rows: Tensor, places: Tensor) -> Tensor:
    """Return the gradient of the rows, zero for padding: [N, K, K] -> [R, W]."""
    (number, most), result = places.shape, torch.zeros_like(rows)
    with torch.cuda.device_of(rows):
        _products_backward[(triton.cdiv(number, _ROWS),)](
            grad + grad.mT, rows, places, result, number, rows.shape[1],
            MOST=most, ROWS=_ROWS, BLOCK=triton.next_power_of_2(rows.shape[1]),
        )  # fmt: skip
    return result


@triton.jit
def _plan(
    chosen, places, tokens, of_tiles, bounds, number, experts,
    TILE: tl.constexpr, PADDED: tl.constexpr, TILES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    own, every = tl.program_id(0), tl.arange(0, PADDED)
    counts = tl.zeros([PADDED], tl.int32)
    for start in range(0, number, BLOCK):
        token = start + tl.arange(0, BLOCK)
        inside = (token < number)[:, None] & (every < experts)[None, :]
        ones = tl.load(chosen + token[:, None] * experts + every[None, :], mask=inside, other=0)
        counts += tl.sum(ones.to(tl.int32), 0)
    lengths = (counts + TILE - 1) // TILE * TILE
    first = tl.sum(tl.where(every < own, lengths, 0))
    length = tl.sum(tl.where(every == own, lengths, 0))
    tl.store(bounds + own, first)
    tl.store(bounds + experts, first + length, mask=own == experts - 1)
    tile = tl.arange(0, TILES)
    tl.store(of_tiles + first // TILE + tile, own, mask=tile < length // TILE)
    taken = first
    for start in range(0, number, BLOCK):
        token = start + tl.arange(0, BLOCK)
        one = tl.load(chosen + token * experts + own, mask=token < number, other=0).to(tl.int32)
        place = taken + tl.cumsum(one, 0) - 1
        tl.store(places + token * experts + own, tl.where(one > 0, place, -1), mask=token < number)
        tl.store(tokens + place, token, mask=one > 0)
        taken += tl.sum(one)


@triton.jit
def _gather(
    values, tokens, experts, result, width, TILE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    start = tl.program_id(0) * ROWS
    if tl.load(experts + start // TILE) < 0:
        return
    row, column = (start + tl.arange(0, ROWS)).to(tl.int64), tl.arange(0, BLOCK)
    token, within = tl.load(tokens + row).to(tl.int64), (column < width)[None, :]
    value = tl.load(values + token[:, None] * width + column[None, :], mask=(token >= 0)[:, None] & within, other=0.0)
    tl.store(result + row[:, None] * width + column[None, :], value, mask=within)


@triton.jit
def _mix(
    rows, gates, places, result, number, width, experts, GATED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    token, column = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS), tl.arange(0, BLOCK)
    inside, within = token < number, (column < width)[None, :]
    total = tl.zeros([ROWS, BLOCK], tl.float32)
    for expert in range(experts):
        place = tl.load(places + token * experts + expert, mask=inside, other=-1).to(tl.int64)
        there = (place >= 0)[:, None] & within
        value = tl.load(rows + place[:, None] * width + column[None, :], mask=there, other=0.0).to(tl.float32)
        if GATED:
            value *= tl.load(gates + token * experts + expert, mask=inside, other=0.0)[:, None]
        total += value
    tl.store(result + token[:, None] * width + column[None, :], total, mask=inside[:, None] & within)


@triton.jit
def _mix_backward(
    grad, rows, gates, tokens, of_tiles, row_grad, gate_grad, width, experts,
    TILE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    start = tl.program_id(0) * ROWS
    expert = tl.load(of_tiles + start // TILE)
    if expert < 0:
        return
    row, column = (start + tl.arange(0, ROWS)).to(tl.int64), tl.arange(0, BLOCK)
    token, within = tl.load(tokens + row).to(tl.int64), (column < width)[None, :]
    there = token >= 0
    source = token[:, None] * width + column[None, :]
    above = tl.load(grad + source, mask=there[:, None] & within, other=0.0).to(tl.float32)
    value = tl.load(rows + row[:, None] * width + column[None, :], mask=within, other=0.0).to(tl.float32)
    gate = tl.load(gates + token * experts + expert, mask=there, other=0.0)
    tl.store(row_grad + row[:, None] * width + column[None, :], gate[:, None] * above, mask=within)
    tl.store(gate_grad + token * experts + expert, tl.sum(above * value, 1), mask=there)


@triton.jit
def _row(rows, places, token, inside, slot, column, width, MOST: tl.constexpr):
    place = tl.load(places + token * MOST + slot, mask=inside, other=-1).to(tl.int64)
    there = (place >= 0)[:, None] & (column < width)[None, :]
    where = place[:, None] * width + column[None, :]
    return tl.load(rows + where, mask=there, other=0.0).to(tl.float32), where, there


@triton.jit
def _products(rows, places, result, number, width, MOST: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    token, column = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS), tl.arange(0, BLOCK)
    inside = token < number
    for one in range(MOST):
        mine, _, _ = _row(rows, places, token, inside, one, column, width, MOST)
        for other in range(one, MOST):
            theirs, _, _ = _row(rows, places, token, inside, other, column, width, MOST)
            product = tl.sum(mine * theirs, 1)
            tl.store(result + (token * MOST + one) * MOST + other, product, mask=inside)
            tl.store(result + (token * MOST + other) * MOST + one, product, mask=inside)


@triton.jit
def _products_backward(
    grad, rows, places, result, number, width, MOST: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    token, column = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS), tl.arange(0, BLOCK)
    inside = token < number
    for one in range(MOST):
        total = tl.zeros([ROWS, BLOCK], tl.float32)
        for other in range(MOST):
            theirs, _, _ = _row(rows, places, token, inside, other, column, width, MOST)
            total += theirs * tl.load(grad + (token * MOST + one) * MOST + other, mask=inside, other=0.0)[:, None]
        _, where, there = _row(rows, places, token, inside, one, column, width, MOST)
        tl.store(result + where, total, mask=there)
