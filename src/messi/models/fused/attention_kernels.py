"""Deterministic attention over a few hundred tokens, forward and backward.

Flash attention sums the gradient of the queries with atomics or, if deterministic, more slowly. It returns three
tensors that have to be concatenated, and pads 197 tokens to 256. Here a program owns the gradients that it writes,
directly to where the next matrix product reads them, and computes the bias gradients as well. The remainder after
blocks of 64 tokens uses a block of 16 if it fits.
Legend: B images, Q queries, K keys, H heads, D numbers per head (a power of two). Scores are in units of log 2.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK, _REST, _INNER = 64, 16, 32
EXACT: tl.constexpr = tl.constexpr("ieee")
"""No tf32 for float32 inputs; it does not apply to bfloat16."""
_SHAPE = {"BLOCK": _BLOCK, "REST": _REST, "INNER": _INNER}


def attend(query: Tensor, key: Tensor, value: Tensor, result: Tensor) -> Tensor:
    """Write attention into ``result`` [B, Q, H, D] for query [B, Q, H, D], key and value [B, K, H, D].

    Returns log-sums [B, H, Q] for the backward pass. Heads and their numbers must be contiguous; tokens and images may
    have any stride, the same in key and value.
    """
    batch, queries, heads, depth = query.shape
    log_sums = torch.empty(batch, heads, queries, device=query.device)
    with torch.cuda.device_of(query):
        _attend[(triton.cdiv(queries, _BLOCK), batch * heads)](
            query, key, value, result, log_sums, *query.stride()[:2], *key.stride()[:2], heads, queries, key.shape[1],
            math.log2(math.e) / math.sqrt(depth), DEPTH=depth, **_SHAPE, num_warps=4, num_stages=3,
        )  # fmt: skip
    return log_sums


def attend_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    result: Tensor,
    log_sums: Tensor,
    into: tuple[Tensor, Tensor, Tensor],
    token_sums: Tensor,
) -> None:
    """Write the gradients of query, key and value ``into`` tensors with the same strides, and their sums over tokens.

    The sums come in :func:`token_parts` parts, float32 [P, 3, H, D].
    """
    batch, queries, heads, depth = query.shape
    keys = key.shape[1]
    blocks = triton.cdiv(keys, _BLOCK)
    levels = torch.empty_like(log_sums)
    strides = (*query.stride()[:2], *key.stride()[:2], heads, queries, keys, 1 / math.sqrt(depth))
    with torch.cuda.device_of(query):
        _query_grads[(blocks, batch * heads)](
            query, key, value, result, grad, log_sums, levels, into[0], token_sums, *strides,
            DEPTH=depth, **_SHAPE, num_warps=4, num_stages=3,
        )  # fmt: skip
        _key_grads[(blocks, batch * heads)](
            query, key, value, grad, log_sums, levels, *into[1:], token_sums, *strides,
            DEPTH=depth, **_SHAPE, num_warps=4, num_stages=3,
        )  # fmt: skip


def token_parts(batch: int, keys: int) -> int:
    """Return the number of parts in which :func:`attend_backward` stores the sums over tokens."""
    return int(batch * triton.cdiv(keys, _BLOCK))


@triton.jit
def _attend(
    query, key, value, result, log_sums, query_image, query_token, key_image, key_token, heads, queries, keys, scale,
    BLOCK: tl.constexpr, REST: tl.constexpr, INNER: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    start = tl.program_id(0) * BLOCK
    image, head = (tl.program_id(1) // heads).to(tl.int64), tl.program_id(1) % heads
    query += image * query_image + head * DEPTH
    key += image * key_image + head * DEPTH
    value += image * key_image + head * DEPTH
    result += image * queries * heads * DEPTH + head * DEPTH
    log_sums += tl.program_id(1) * queries
    sizes = (query_token, key_token, heads * DEPTH, queries, keys, scale)
    if queries - start > REST:
        _attend_block(query, key, value, result, log_sums, start, sizes, BLOCK, INNER, DEPTH)
    else:
        _attend_block(query, key, value, result, log_sums, start, sizes, REST, INNER, DEPTH)


@triton.jit
def _attend_block(
    query, key, value, result, log_sums, start, sizes,
    QUERIES: tl.constexpr, INNER: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    query_token, key_token, step, queries, keys, scale = sizes
    row, depth = start + tl.arange(0, QUERIES), tl.arange(0, DEPTH)
    asked = (row < queries)[:, None]
    q = tl.load(query + row[:, None] * query_token + depth[None, :], mask=asked, other=0.0)
    top = tl.full([QUERIES], -float("inf"), tl.float32)
    mass = tl.zeros([QUERIES], tl.float32)
    total = tl.zeros([QUERIES, DEPTH], tl.float32)
    for first in range(0, keys, INNER):
        column = first + tl.arange(0, INNER)
        place = column[:, None] * key_token + depth[None, :]
        k = tl.load(key + place, mask=(column < keys)[:, None], other=0.0)
        v = tl.load(value + place, mask=(column < keys)[:, None], other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision=EXACT) * scale
        scores = tl.where((column < keys)[None, :], scores, -float("inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        share = tl.exp2(scores - higher[:, None])
        kept = tl.exp2(top - higher)
        mass = mass * kept + tl.sum(share, 1)
        total = total * kept[:, None] + tl.dot(share.to(v.dtype), v, input_precision=EXACT)
        top = higher
    tl.store(result + row[:, None] * step + depth[None, :], total / mass[:, None], mask=asked)
    tl.store(log_sums + row, top + tl.log2(mass), mask=row < queries)


@triton.jit
def _query_grads(
    query, key, value, result, grad, log_sums, levels, query_grad, token_sums,
    query_image, query_token, key_image, key_token, heads, queries, keys, scale,
    BLOCK: tl.constexpr, REST: tl.constexpr, INNER: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of a block of queries, and the levels that the softmax subtracts from score gradients."""
    start = tl.program_id(0) * BLOCK
    image, head = (tl.program_id(1) // heads).to(tl.int64), tl.program_id(1) % heads
    query += image * query_image + head * DEPTH
    query_grad += image * query_image + head * DEPTH
    key += image * key_image + head * DEPTH
    value += image * key_image + head * DEPTH
    result += image * queries * heads * DEPTH + head * DEPTH
    grad += image * queries * heads * DEPTH + head * DEPTH
    log_sums += tl.program_id(1) * queries
    levels += tl.program_id(1) * queries
    part = image * tl.num_programs(0) + tl.program_id(0)
    token_sums += (part * 3 * heads + head) * DEPTH + tl.arange(0, DEPTH)
    sizes = (query_token, key_token, heads * DEPTH, queries, keys, scale)
    if queries - start > REST:
        _query_block(
            query, key, value, result, grad, log_sums, levels, query_grad, token_sums, start, sizes, BLOCK, INNER, DEPTH
        )
    else:
        _query_block(
            query, key, value, result, grad, log_sums, levels, query_grad, token_sums, start, sizes, REST, INNER, DEPTH
        )


@triton.jit
def _query_block(
    query, key, value, result, grad, log_sums, levels, query_grad, token_sums, start, sizes,
    QUERIES: tl.constexpr, INNER: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    query_token, key_token, step, queries, keys, scale = sizes
    row, depth = start + tl.arange(0, QUERIES), tl.arange(0, DEPTH)
    asked = (row < queries)[:, None]
    q = tl.load(query + row[:, None] * query_token + depth[None, :], mask=asked, other=0.0)
    above = tl.load(grad + row[:, None] * step + depth[None, :], mask=asked, other=0.0)
    out = tl.load(result + row[:, None] * step + depth[None, :], mask=asked, other=0.0)
    log_sum = tl.load(log_sums + row, mask=row < queries, other=float("inf"))
    level = tl.sum(above.to(tl.float32) * out.to(tl.float32), 1)
    tl.store(levels + row, level, mask=row < queries)
    q_grad = tl.zeros([QUERIES, DEPTH], tl.float32)
    for first in range(0, keys, INNER):
        column = first + tl.arange(0, INNER)
        place = column[:, None] * key_token + depth[None, :]
        # A missing key is zero, and so is its contribution.
        k = tl.load(key + place, mask=(column < keys)[:, None], other=0.0)
        v = tl.load(value + place, mask=(column < keys)[:, None], other=0.0)
        share = tl.exp2(tl.dot(q, tl.trans(k), input_precision=EXACT) * (scale * 1.4426950408889634) - log_sum[:, None])
        score_grad = share * (tl.dot(above, tl.trans(v), input_precision=EXACT) - level[:, None])
        q_grad += tl.dot(score_grad.to(k.dtype), k, input_precision=EXACT)
    q_grad *= scale
    tl.store(query_grad + row[:, None] * query_token + depth[None, :], q_grad, mask=asked)
    tl.store(token_sums, tl.sum(q_grad, 0))


@triton.jit
def _key_grads(
    query, key, value, grad, log_sums, levels, key_grad, value_grad, token_sums,
    query_image, query_token, key_image, key_token, heads, queries, keys, scale,
    BLOCK: tl.constexpr, REST: tl.constexpr, INNER: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of a block of keys and values."""
    start = tl.program_id(0) * BLOCK
    image, head = (tl.program_id(1) // heads).to(tl.int64), tl.program_id(1) % heads
    query += image * query_image + head * DEPTH
    key += image * key_image + head * DEPTH
    value += image * key_image + head * DEPTH
    key_grad += image * key_image + head * DEPTH
    value_grad += image * key_image + head * DEPTH
    grad += image * queries * heads * DEPTH + head * DEPTH
    log_sums += tl.program_id(1) * queries
    levels += tl.program_id(1) * queries
    part = image * tl.num_programs(0) + tl.program_id(0)
    token_sums += ((part * 3 + 1) * heads + head) * DEPTH + tl.arange(0, DEPTH)
    sizes = (query_token, key_token, heads * DEPTH, queries, keys, scale)
    if keys - start > REST:
        _key_block(
            query, key, value, grad, log_sums, levels, key_grad, value_grad, token_sums, start, sizes,
            BLOCK, INNER, DEPTH,
        )  # fmt: skip
    else:
        _key_block(
            query, key, value, grad, log_sums, levels, key_grad, value_grad, token_sums, start, sizes,
            REST, INNER, DEPTH,
        )  # fmt: skip


@triton.jit
def _key_block(
    query, key, value, grad, log_sums, levels, key_grad, value_grad, token_sums, start, sizes,
    KEYS: tl.constexpr, INNER: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    query_token, key_token, step, queries, keys, scale = sizes
    column, depth = start + tl.arange(0, KEYS), tl.arange(0, DEPTH)
    there = (column < keys)[:, None]
    place = column[:, None] * key_token + depth[None, :]
    k = tl.load(key + place, mask=there, other=0.0)
    v = tl.load(value + place, mask=there, other=0.0)
    k_grad = tl.zeros([KEYS, DEPTH], tl.float32)
    v_grad = tl.zeros([KEYS, DEPTH], tl.float32)
    for first in range(0, queries, INNER):
        row = first + tl.arange(0, INNER)
        asked = (row < queries)[:, None]
        q = tl.load(query + row[:, None] * query_token + depth[None, :], mask=asked, other=0.0)
        above = tl.load(grad + row[:, None] * step + depth[None, :], mask=asked, other=0.0)
        log_sum = tl.load(log_sums + row, mask=row < queries, other=float("inf"))
        level = tl.load(levels + row, mask=row < queries, other=0.0)
        share = tl.exp2(tl.dot(k, tl.trans(q), input_precision=EXACT) * (scale * 1.4426950408889634) - log_sum[None, :])
        v_grad += tl.dot(share.to(v.dtype), above, input_precision=EXACT)
        score_grad = share * (tl.dot(v, tl.trans(above), input_precision=EXACT) - level[None, :])
        k_grad += tl.dot(score_grad.to(k.dtype), q, input_precision=EXACT)
    k_grad *= scale
    tl.store(key_grad + place, k_grad, mask=there)
    tl.store(value_grad + place, v_grad, mask=there)
    tl.store(token_sums, tl.sum(tl.where(there, k_grad, 0.0), 0))
    tl.store(token_sums + step, tl.sum(tl.where(there, v_grad, 0.0), 0))
