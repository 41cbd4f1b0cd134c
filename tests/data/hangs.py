"""A test that hangs fails instead."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def within(seconds: int) -> Iterator[None]:
    """Raise an error in the middle of whatever takes longer."""

    def ring(*_: object) -> None:
        raise TimeoutError(f"It took more than {seconds} s.")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
