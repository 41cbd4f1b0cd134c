"""Ctrl-C and SIGTERM stop a run between two steps, with a checkpoint."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(KeyboardInterrupt):
    """A run was stopped on request, and its state is saved."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.signal = number


class StopRequest:
    """True once the user or the system has requested a stop."""

    def __init__(self) -> None:
        self.signal = 0

    def __bool__(self) -> bool:
        return self.signal > 0


@contextmanager
def stop_on_signal() -> Iterator[StopRequest]:
    """Catch the first SIGINT or SIGTERM inside the block; a second one acts immediately, as usual."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def handle(number: int, _frame: FrameType | None) -> None:
        request.signal = number
        restore()

    for number in before:
        signal.signal(number, handle)
    try:
        yield request
    finally:
        restore()
