"""Candidate: the attention backward pass of an image and a head in one program.

Scores are transposed, [keys, queries], so that two of the three products with them take them from registers. The
gradient of the queries is summed in float32 memory over the blocks of keys.
"""

import math

import torch
import triton
import triton.language as tl

from messi.models.fused.attention_kernels import EXACT


@triton.jit
def grads(
    query, key, value, result, grad, log_sums, levels, query_grad, key_grad, value_grad, token_sums, scratch,
    query_image, query_token, key_image, key_token, heads, queries, keys, padded, scale,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, REST: tl.constexpr, DEPTH: tl.constexpr, SWAP: tl.constexpr,
):
    image, head = (tl.program_id(0) // heads).to(tl.int64), tl.program_id(0) % heads
    query += image * query_image + head * DEPTH
    query_grad += image * query_image + head * DEPTH
    key += image * key_image + head * DEPTH
    value += image * key_image + head * DEPTH
    key_grad += image * key_image + head * DEPTH
    value_grad += image * key_image + head * DEPTH
    result += image * queries * heads * DEPTH + head * DEPTH
    grad += image * queries * heads * DEPTH + head * DEPTH
    log_sums += tl.program_id(0) * padded
    levels += tl.program_id(0) * padded
    scratch += tl.program_id(0).to(tl.int64) * queries * DEPTH
    token_sums += (image * 3 * heads + head) * DEPTH + tl.arange(0, DEPTH)
    step = heads * DEPTH
    depth = tl.arange(0, DEPTH)
    # A softmax sums to 1: all values together get the gradient of all results, and all keys together none.
    v_sum = tl.zeros([DEPTH], tl.float32)
    for first in range(0, queries, QUERIES):
        row = first + tl.arange(0, QUERIES)
        asked = (row < queries)[:, None]
        above = tl.load(grad + row[:, None] * step + depth[None, :], mask=asked, other=0.0).to(tl.float32)
        v_sum += tl.sum(above, 0)
        out = tl.load(result + row[:, None] * step + depth[None, :], mask=asked, other=0.0).to(tl.float32)
        tl.store(levels + row, tl.sum(above * out, 1), mask=row < queries)
    tl.store(token_sums + step, tl.zeros([DEPTH], tl.float32))
    tl.store(token_sums + 2 * step, v_sum)
    tl.debug_barrier()
    pointers = (query, key, value, grad, log_sums, levels, key_grad, value_grad, scratch)
    sizes = (query_token, key_token, step, queries, keys, scale)
    for first in range(0, keys - KEYS + 1, KEYS):
        key_part(pointers, sizes, first, QUERIES, KEYS, DEPTH, SWAP)
        tl.debug_barrier()
    if REST > 0:
        key_part(pointers, sizes, keys // KEYS * KEYS, QUERIES, REST, DEPTH, SWAP)
        tl.debug_barrier()
    q_sum = tl.zeros([DEPTH], tl.float32)
    for first in range(0, queries, QUERIES):
        row = first + tl.arange(0, QUERIES)
        asked = (row < queries)[:, None]
        total = tl.load(scratch + row[:, None] * DEPTH + depth[None, :], mask=asked, other=0.0) * scale
        tl.store(query_grad + row[:, None] * query_token + depth[None, :], total, mask=asked)
        q_sum += tl.sum(total, 0)
    tl.store(token_sums, q_sum)


@triton.jit
def key_part(
    pointers, sizes, start, QUERIES: tl.constexpr, KEYS: tl.constexpr, DEPTH: tl.constexpr, SWAP: tl.constexpr
):
    query, key, value, grad, log_sums, levels, key_grad, value_grad, scratch = pointers
    query_token, key_token, step, queries, keys, scale = sizes
    column, depth = start + tl.arange(0, KEYS), tl.arange(0, DEPTH)
    there = (column < keys)[:, None]
    place = column[:, None] * key_token + depth[None, :]
    k = tl.load(key + place, mask=there, other=0.0)
    v = tl.load(value + place, mask=there, other=0.0)
    k_grad = tl.zeros([KEYS, DEPTH], tl.float32)
    v_grad = tl.zeros([KEYS, DEPTH], tl.float32)
    for first in range(0, queries, QUERIES):
        row = first + tl.arange(0, QUERIES)
        asked = (row < queries)[:, None]
        q = tl.load(query + row[:, None] * query_token + depth[None, :], mask=asked, other=0.0)
        above = tl.load(grad + row[:, None] * step + depth[None, :], mask=asked, other=0.0)
        log_sum = tl.load(log_sums + row, mask=row < queries, other=float("inf"))
        level = tl.load(levels + row, mask=row < queries, other=0.0)
        spot = scratch + row[:, None] * DEPTH + depth[None, :]
        before = tl.load(spot, mask=(row < queries * (start > 0))[:, None], other=0.0)
        factor = scale * 1.4426950408889634
        if SWAP:  # a missing key is zero, and so is what it adds to the queries
            share = tl.exp2(tl.dot(k, tl.trans(q), input_precision=EXACT) * factor - log_sum[None, :])
            v_grad += tl.dot(share.to(v.dtype), above, input_precision=EXACT)
            score = share * (tl.dot(v, tl.trans(above), input_precision=EXACT) - level[None, :])
            score = score.to(k.dtype)
            k_grad += tl.dot(score, q, input_precision=EXACT)
            part = tl.dot(tl.trans(score), k, input_precision=EXACT)
        else:
            share = tl.exp2(tl.dot(q, tl.trans(k), input_precision=EXACT) * factor - log_sum[:, None])
            v_grad += tl.dot(tl.trans(share.to(v.dtype)), above, input_precision=EXACT)
            score = share * (tl.dot(above, tl.trans(v), input_precision=EXACT) - level[:, None])
            score = score.to(k.dtype)
            k_grad += tl.dot(tl.trans(score), q, input_precision=EXACT)
            part = tl.dot(score, k, input_precision=EXACT)
        tl.store(spot, before + part, mask=asked)
    tl.store(key_grad + place, k_grad * scale, mask=there)
    tl.store(value_grad + place, v_grad, mask=there)


def rest(number: int, block: int) -> int:
    over = number % block
    return 0 if over == 0 else min(max(triton.next_power_of_2(over), 16), block)


def backward(grad, query, key, value, result, log_sums, into, token_sums, *, KEYS=64, QUERIES=64, SWAP=True, num_warps=4, num_stages=1):
    batch, queries, heads, depth = query.shape
    keys = key.shape[1]
    levels = torch.empty_like(log_sums)
    scratch = torch.empty(batch * heads, queries, depth, device=query.device)
    return grads[(batch * heads,)](
        query, key, value, result, grad, log_sums, levels, *into, token_sums, scratch,
        *query.stride()[:2], *key.stride()[:2], heads, queries, keys, log_sums.shape[2], 1 / math.sqrt(depth),
        QUERIES=QUERIES, KEYS=KEYS, REST=rest(keys, KEYS), DEPTH=depth, SWAP=SWAP, num_warps=num_warps, num_stages=num_stages,
    )
