"""Answers concurrent requests in batches: while the model computes one batch, the next one collects.

Nothing waits for a batch to fill: an idle service answers a single input immediately, and the batches grow by
themselves when requests arrive faster than the model answers.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import torch

from messi.data.threads import worker_threads

_Input = TypeVar("_Input")
_Answer = TypeVar("_Answer")


class QueueFullError(Exception):
    """There are more inputs than the queue has room for."""


class Batcher(Generic[_Input, _Answer]):
    """A bounded queue of inputs in front of a function that answers a list of them, in one thread."""

    def __init__(
        self, function: Callable[[list[_Input]], Sequence[_Answer | Exception]], *, batch_size: int, room: int
    ) -> None:
        self._function, self._batch_size, self._room = function, batch_size, room
        self._queue: deque[tuple[_Input, asyncio.Future[_Answer]]] = deque()
        self._arrived = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None
        self._thread = worker_threads(1, torch.get_num_threads())

    @property
    def waiting(self) -> int:
        """The number of inputs in the queue."""
        return len(self._queue)

    async def answer(self, inputs: Sequence[_Input]) -> list[_Answer]:
        """Answer all inputs of a request; raise the first error, or :class:`QueueFullError` before any is queued."""
        if len(self._queue) + len(inputs) > self._room:
            raise QueueFullError
        loop = asyncio.get_running_loop()
        futures: list[asyncio.Future[_Answer]] = [loop.create_future() for _ in inputs]
        self._queue.extend(zip(inputs, futures, strict=True))
        self._arrived.set()
        try:
            return await asyncio.gather(*futures)
        except BaseException:  # a request that failed or was given up leaves nothing behind, and no place taken
            for future in futures:
                future.cancel()
            self._queue = deque(entry for entry in self._queue if not entry[1].done())
            raise

    async def __aenter__(self) -> "Batcher[_Input, _Answer]":
        self._worker = asyncio.create_task(self._work())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._worker:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)
        self._thread.shutdown()

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._arrived.wait()
            batch = self._next()
            if not batch:
                self._arrived.clear()
                continue
            inputs = [one for one, _ in batch]
            try:
                answers = await loop.run_in_executor(self._thread, self._function, inputs)
            except Exception as error:  # noqa: BLE001 (the service survives it, and every request is told)
                answers = [error] * len(batch)
            for (_, future), answer in zip(batch, answers, strict=True):
                _settle(future, answer)

    def _next(self) -> list[tuple[_Input, asyncio.Future[_Answer]]]:
        """Take a batch from the queue, without the inputs that nobody waits for any longer."""
        batch: list[tuple[_Input, asyncio.Future[_Answer]]] = []
        while self._queue and len(batch) < self._batch_size:
            one, future = self._queue.popleft()
            if not future.done():
                batch.append((one, future))
        return batch


def _settle(future: asyncio.Future[_Answer], answer: _Answer | Exception) -> None:
    if future.done():
        return
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)
