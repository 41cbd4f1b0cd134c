"""Time candidates for attention and for the layer with GELU on a GPU, at the shapes of DeiT-S and DeiT-Ti.

    for i in $(seq 12); do PART=$i/12 PYTHONPATH=src:scratch python scratch/tune.py & done; wait   # compile in parallel
    PYTHONPATH=src:scratch python scratch/tune.py

Each candidate is compared with float64 and must give the same bits twice. Times are of calls inside a graph.
"""

import math
import os
import statistics
import sys
from collections.abc import Callable
from typing import Any

import torch
import triton
from torch import Tensor

import one_kernel
from messi.models.fused import attention_kernels, gelu_kernels

PART = [int(number) for number in os.environ.get("PART", "0/1").split("/")]
BATCH, TOKENS, DEPTH, FEW = 96, 197, 64, 4
SHAPES = {"S": 6, "Ti": 3}
count = 0


def microseconds(work: Callable[[], Any]) -> float:
    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(8):
            work()
    times = []
    for _ in range(12):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / 8 * 1000)
    return statistics.median(times)


def error(found: Tensor, exact: Tensor) -> float:
    return float((found[: len(exact)].double() - exact).norm() / exact.norm())


def attempt(name: str, work: Callable[[], Any], results: list[Tensor], exact: list[Tensor]) -> None:
    """Check and time one candidate; in a part, only run it, which compiles it."""
    global count
    count += 1
    if PART[1] > 1 and count % PART[1] != PART[0] % PART[1]:
        return
    try:
        for result in results:
            result.fill_(float("nan"))
        work()
        first = [result.clone() for result in results]
        errors = [error(result, right) for result, right in zip(results, exact, strict=True)]
        work()
        same = all(map(torch.equal, first, results))
        if PART[1] == 1:
            print(f"{microseconds(work):8.1f} us  {name}  errors {' '.join(f'{one:.1e}' for one in errors)}  same {same}", flush=True)
    except Exception as problem:  # noqa: BLE001
        print(f"   failed  {name}: {type(problem).__name__} {str(problem)[:150]}", flush=True)


def attention(name: str, heads: int) -> None:
    torch.manual_seed(0)
    projected = torch.randn(BATCH, TOKENS, 3, heads, DEPTH, device="cuda").bfloat16()
    query, key, value = projected.unbind(2)
    above = torch.randn(BATCH, TOKENS, heads, DEPTH, device="cuda").bfloat16()
    result = torch.empty_like(above)
    exact = [one[:FEW].double().requires_grad_() for one in (query, key, value)]
    wanted = torch.nn.functional.scaled_dot_product_attention(*(one.transpose(1, 2) for one in exact)).transpose(1, 2)
    grads = list(torch.autograd.grad((wanted * above[:FEW]).sum(), exact))
    log_sums = attention_kernels.attend(query, key, value, result)
    padded = log_sums.shape[2]
    strides = (*query.stride()[:2], *key.stride()[:2], heads, TOKENS, TOKENS, padded)
    into = torch.empty_like(projected)
    targets = into.unbind(2)
    levels = torch.empty_like(log_sums)
    sums = torch.empty(attention_kernels.token_parts(BATCH, TOKENS), 3, heads, DEPTH, device="cuda")
    for block, tail, warps, stages, registers in (
        (64, 16, 4, 2, None), (64, 16, 4, 1, None), (64, 16, 4, 3, None), (64, 16, 4, 2, 96), (64, 16, 8, 2, None), (128, 128, 8, 1, None), (32, 16, 4, 2, None),
    ):  # fmt: skip
        options = {"BLOCK": block, "REST": 16, "TAIL": tail, "DEPTH": DEPTH, "num_warps": warps, "num_stages": stages, "maxnreg": registers}
        grid = triton.cdiv(TOKENS, block), BATCH * heads
        scale = 1 / math.sqrt(DEPTH)

        def forward(grid: Any = grid, options: Any = options, scale: float = scale) -> None:
            attention_kernels._attend[grid](
                query, key, value, result, log_sums, *strides, math.log2(math.e) * scale, **options
            )

        def of_queries(grid: Any = grid, options: Any = options, scale: float = scale) -> None:
            attention_kernels._query_grads[grid](
                query, key, value, result, above, log_sums, levels, targets[0], sums, *strides, scale, **options
            )

        def of_keys(grid: Any = grid, options: Any = options, scale: float = scale) -> None:
            attention_kernels._key_grads[grid](
                query, key, value, above, log_sums, levels, *targets[1:], sums, *strides, scale, **options
            )

        shape = f"blocks of {block}, tail {tail}, {warps} warps, {stages} stages, {registers} registers"
        attempt(f"{name} attend {shape}", forward, [result], [wanted.detach()])
        if block >= 64:
            attempt(f"{name} query grads {shape}", of_queries, [targets[0]], grads[:1])
            attempt(f"{name} key grads {shape}", of_keys, list(targets[1:]), grads[1:])
    attention_kernels.attend(query, key, value, result)
    for keys, queries, swap, warps, stages in (
        (64, 32, True, 4, 1), (64, 32, True, 4, 2), (64, 64, False, 4, 1), (64, 64, True, 4, 1), (64, 64, True, 8, 1), (128, 32, True, 8, 1),
        (128, 64, True, 8, 1), (32, 64, True, 4, 1), (64, 32, False, 4, 1),
    ):  # fmt: skip
        def both(keys: int = keys, queries: int = queries, swap: bool = swap, warps: int = warps, stages: int = stages) -> None:
            one_kernel.backward(
                above, query, key, value, result, log_sums, targets, sums,
                KEYS=keys, QUERIES=queries, SWAP=swap, num_warps=warps, num_stages=stages,
            )  # fmt: skip

        attempt(f"{name} one kernel, {keys} keys, {queries} queries, swap {swap}, {warps} warps, {stages} stages", both, list(targets), grads)


def layer(name: str, width: int) -> None:
    torch.manual_seed(0)
    rows = BATCH * TOKENS
    x = torch.randn(rows, width, device="cuda").bfloat16()
    weight = (torch.randn(4 * width, width, device="cuda") / width**0.5).bfloat16()
    bias = torch.randn(4 * width, device="cuda")
    hidden, active = torch.empty(2, rows, 4 * width, device="cuda", dtype=torch.bfloat16)
    after = weight.mT.contiguous()
    few = torch.addmm(bias.double(), x[:2000].double(), weight.double().mT)
    exact = torch.nn.functional.gelu(few)
    low = bias.bfloat16()
    attempt(f"{name} product alone", lambda: torch.addmm(low, x, weight.mT, out=hidden), [hidden], [few])
    attempt(f"{name} product of the gradient alone", lambda: torch.mm(x, after, out=active), [active], [x[:2000].double() @ after.double()])
    gelu = torch.nn.functional.gelu
    attempt(f"{name} torch's GELU", lambda: active.copy_(gelu(hidden)), [active], [gelu(hidden[:2000].double())])
    for rows_, columns, warps, stages, registers in (
        (128, 128, 8, 3, 128), (128, 128, 8, 3, None), (128, 128, 8, 2, 128), (128, 256, 8, 3, None), (64, 128, 4, 3, 128), (64, 128, 4, 3, None), (64, 256, 4, 3, None),
    ):  # fmt: skip
        def use(rows_: int = rows_, columns: int = columns, warps: int = warps, stages: int = stages, registers: int | None = registers) -> None:
            gelu_kernels.ROWS = rows_
            gelu_kernels._SHAPE.update(ROWS=rows_, COLUMNS=columns, num_warps=warps, num_stages=stages, maxnreg=registers)

        def forward(use: Callable[[], None] = use) -> None:
            use()
            gelu_kernels.linear_gelu(x, weight, bias, hidden, active, quick=False)

        def backward(use: Callable[[], None] = use) -> None:
            use()
            parts = torch.empty(gelu_kernels.linear_parts(rows), 4 * width, device="cuda")
            gelu_kernels.linear_gelu_backward(x, after, hidden, parts, quick=False)

        tile = f"{rows_} x {columns}, {warps} warps, {stages} stages, {registers} registers"
        attempt(f"{name} linear GELU {tile}", forward, [active], [exact])
        if PART[1] == 1:
            try:
                print(f"{microseconds(backward):8.1f} us  {name} linear GELU backward {tile}", flush=True)
            except Exception as problem:  # noqa: BLE001
                print(f"   failed  {name} linear GELU backward {tile}: {type(problem).__name__}", flush=True)


for name, heads in SHAPES.items():
    attention(name, heads)
    layer(name, heads * DEPTH)
sys.exit()
