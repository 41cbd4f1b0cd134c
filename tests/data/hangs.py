"""Makes a test that hangs fail."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def within(seconds: int) -> Iterator[None]:
    """Raise an error if the block takes longer."""

    def ring(*_: object) -> None:
        raise TimeoutError(f"It took more than {seconds} s.")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
