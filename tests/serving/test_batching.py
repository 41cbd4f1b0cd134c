"""Batches form while the model works, and no request waits forever or gets the answer of another."""

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest
import torch

from messi.data.threads import worker_threads
from messi.serving.batching import Batcher, QueueFullError


class Model:
    """Doubles numbers, one batch at a time, when it is allowed to."""

    def __init__(self, *, allowed: bool = True) -> None:
        self.batches: list[list[int]] = []
        self.may_work = threading.Event()
        if allowed:
            self.may_work.set()

    def __call__(self, inputs: list[int]) -> Sequence[int | Exception]:
        self.batches.append(inputs)
        assert self.may_work.wait(10)
        if 13 in inputs:
            raise RuntimeError("the whole batch fails")
        return [ValueError(f"{one} is bad") if one < 0 else 2 * one for one in inputs]


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 20))


async def settled() -> None:
    """Let all tasks run until they wait."""
    for _ in range(20):
        await asyncio.sleep(0.001)


def test_an_idle_model_answers_at_once_and_a_busy_one_in_batches() -> None:
    async def test() -> None:
        model = Model(allowed=False)
        async with Batcher(model, batch_size=4, room=100) as batcher:
            first = asyncio.create_task(batcher.answer([1]))
            await settled()
            assert model.batches == [[1]]
            others = [asyncio.create_task(batcher.answer([n, 10 * n])) for n in (2, 3, 4)]
            await settled()
            assert batcher.waiting == 6
            model.may_work.set()
            assert await first == [2]
            assert await asyncio.gather(*others) == [[4, 40], [6, 60], [8, 80]]
        assert model.batches == [[1], [2, 20, 3, 30], [4, 40]]

    run(test())


def test_a_full_queue_refuses_the_whole_request_and_recovers() -> None:
    async def test() -> None:
        model = Model(allowed=False)
        async with Batcher(model, batch_size=1, room=3) as batcher:
            running = asyncio.create_task(batcher.answer([1]))
            await settled()
            waiting = asyncio.create_task(batcher.answer([2, 3]))
            await settled()
            with pytest.raises(QueueFullError):
                await batcher.answer([4, 5])
            assert batcher.waiting == 2
            model.may_work.set()
            assert (await running, await waiting) == ([2], [4, 6])
            assert await batcher.answer([4, 5]) == [8, 10]

    run(test())


def test_a_request_that_is_given_up_is_not_computed() -> None:
    async def test() -> None:
        model = Model(allowed=False)
        async with Batcher(model, batch_size=8, room=8) as batcher:
            running = asyncio.create_task(batcher.answer([1]))
            await settled()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(batcher.answer([2, 3]), 0.05)
            model.may_work.set()
            await running
            assert await batcher.answer([4]) == [8]
        assert model.batches == [[1], [4]]

    run(test())


def test_a_bad_input_fails_its_own_request_only_and_a_failed_batch_is_not_the_end() -> None:
    async def test() -> None:
        model = Model(allowed=False)
        async with Batcher(model, batch_size=8, room=20) as batcher:
            running = asyncio.create_task(batcher.answer([1]))
            await settled()
            good, bad = (asyncio.create_task(batcher.answer(inputs)) for inputs in ([2], [3, -3]))
            await settled()
            model.may_work.set()
            assert (await running, await good) == ([2], [4])
            with pytest.raises(ValueError, match="-3 is bad"):
                await bad
            with pytest.raises(RuntimeError, match="the whole batch"):
                await batcher.answer([12, 13])
            assert await batcher.answer([5]) == [10]
        assert len(model.batches) == 4

    run(test())


def test_the_model_computes_with_all_threads_whatever_other_threads_use() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)

    def model(inputs: Sequence[int]) -> list[int]:
        return [torch.get_num_threads() for _ in inputs]

    async def test() -> None:
        async with Batcher(model, batch_size=1, room=9) as batcher:
            with worker_threads(1) as readers:
                assert readers.submit(torch.get_num_threads).result() == 1  # torch hands this on to new threads
                assert await batcher.answer([0]) == [3]
                assert readers.submit(torch.get_num_threads).result() == 1

    try:
        run(test())
    finally:
        torch.set_num_threads(before)
