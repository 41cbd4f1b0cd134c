"""Threads share a bounded amount of something, such as memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition


class Room:
    """So much of something; whoever asks for more than is left waits until others are done."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._left, self._changed = size, Condition()

    @contextmanager
    def taken(self, amount: int) -> Iterator[None]:
        """Have an amount, at most all of it, for as long as the block takes."""
        with self._changed:
            self._changed.wait_for(lambda: amount <= self._left)
            self._left -= amount
        try:
            yield
        finally:
            with self._changed:
                self._left += amount
                self._changed.notify_all()
