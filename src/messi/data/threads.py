"""Worker threads for data: pools that leave the cores to the training, and a memory budget that threads share."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Condition

import torch


def worker_threads(number: int, torch_threads: int = 1) -> ThreadPoolExecutor:
    """Return a pool of threads, each of which runs torch operations in ``torch_threads`` threads.

    By default, operations start no further threads. When OpenMP has more threads than the machine has cores, it puts
    all of them to sleep between two operations: one thread that drew batches made training 20 % slower on two cores.
    """
    return ThreadPoolExecutor(number, initializer=_use_threads, initargs=(torch_threads,))


def _use_threads(number: int) -> None:
    """Set the number of threads for this thread's operations, whatever the other threads have set."""
    torch.get_num_threads()  # a new thread takes over the latest number of any thread at its first operation: now
    torch.set_num_threads(number)


class Budget:
    """A limited amount of something, such as memory, that threads share."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._left, self._changed = size, Condition()

    @contextmanager
    def taken(self, amount: int) -> Iterator[None]:
        """Reserve an amount, at most ``size``, for the block; wait until other threads have released enough."""
        with self._changed:
            self._changed.wait_for(lambda: amount <= self._left)
            self._left -= amount
        try:
            yield
        finally:
            with self._changed:
                self._left += amount
                self._changed.notify_all()
