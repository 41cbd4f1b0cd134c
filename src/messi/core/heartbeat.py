"""Notice that a process of a group hangs or has died, and end the others.

Every process writes once a second to a store that all of them read: a count, whether it works on a step, evaluates or
waits for the others, and whether this takes too long. If the count stands still, the process has died or is frozen. If
its step or evaluation takes much too long while another process waits, it hangs. The others then end at once, because
they may be waiting inside an operation that nothing can interrupt. This is safe: a run may be killed at any moment.
"""

import logging
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import NamedTuple

from torch.distributed import TCPStore  # type: ignore[attr-defined]  # its stubs do not export it

SUPERVISOR = "MESSI_SUPERVISOR"
"""The environment variable with the process that has started this one and watches over it, if any."""
_EVERY = 1.0
"""Seconds between two beats."""
_LIMIT = 15.0
"""Seconds without a beat, or in a step or an evaluation, after which a process is given up."""
_BEFORE, _SLOWER = {"step": 20, "evaluation": 1}, 10
"""A step or an evaluation may also take this many times as long as the longest of so many before it. Earlier ones have
no limit: kernels are compiled, and images read for the first time."""
_FAILED = "failed"
START = timedelta(minutes=10)
"""Time for the slowest process to start: it imports torch, perhaps from a network drive."""


class _Beat(NamedTuple):
    """What a process says of itself."""

    number: str
    """How many it has sent."""
    state: str
    """"step", "evaluation", "wait" or "rest", or "failed" if it has ended and said why."""
    overdue: str
    """Whether it has been in this state for longer than the limit."""

    @classmethod
    def read(cls, value: bytes) -> "_Beat":
        return cls(*value.decode().split())


class Heartbeat:
    """The beats of this process, and what it knows of the others."""

    def __init__(self, rank: int, size: int) -> None:
        self._rank, self._size = rank, size
        self._state, self._since = "rest", time.monotonic()
        self._seconds = {work: deque[float](maxlen=number) for work, number in _BEFORE.items()}
        self._end = threading.Event()
        self.alive = False
        """Whether this process beats."""

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Beat inside the block, in a thread; an error inside it ends the other processes, too."""
        self._end.clear()
        self._store = _connect(self._size)
        self._store.set(_key(self._rank), "0 rest 0")
        self._store.wait([_key(rank) for rank in range(self._size)], START)
        self._answered = time.monotonic()
        thread = threading.Thread(target=self._beat, daemon=True)
        thread.start()
        threading.Thread(target=self._watch_store, args=(thread,), daemon=True).start()
        self.alive = True
        try:
            yield
        except BaseException:
            self._state = _FAILED
            raise
        finally:
            self.alive = False
            self._end.set()
            thread.join()
            if self._state == _FAILED:  # the store may end with this process: the others must have read it
                with suppress(RuntimeError):
                    others = [_gone(rank) for rank in range(self._size) if rank != self._rank]
                    self._store.wait(others, timedelta(seconds=_LIMIT))

    @contextmanager
    def during(self, state: str) -> Iterator[None]:
        """Say that this process works on a step ("step"), evaluates ("evaluation") or waits for the others ("wait")."""
        before, start = self._state, time.monotonic()
        self._state, self._since = state, start
        try:
            yield
        finally:
            self._state, self._since = before, time.monotonic()
            if state in self._seconds:
                self._seconds[state].append(time.monotonic() - start)

    def find_culprit(self) -> None:
        """Wait until the thread has found out which process caused a failed operation; it ends this process."""
        time.sleep(2 * _LIMIT)

    def _beat(self) -> None:
        """Beat until the end; the thread's work."""
        others = [rank for rank in range(self._size) if rank != self._rank]
        seen: dict[int, tuple[_Beat, float]] = {}
        count = 0
        while not self._end.wait(_EVERY):
            count += 1
            if os.environ.get(SUPERVISOR, str(os.getppid())) != str(os.getppid()):
                os.kill(os.getpid(), signal.SIGTERM)  # whoever started the processes has died: save and stop
                os.environ.pop(SUPERVISOR)
            try:
                self._store.set(_key(self._rank), f"{count} {self._state} {int(self._overdue())}")
                beats = dict(zip(others, self._store.multi_get([_key(rank) for rank in others]), strict=True))
            except RuntimeError:  # whoever keeps the store has died
                self._give_up(0, "has died")
            self._answered = time.monotonic()
            for rank, value in beats.items():
                beat, now = _Beat.read(value), time.monotonic()
                if beat.state == _FAILED:
                    self._store.set(_gone(self._rank), "")
                    os._exit(2)  # that process has said why
                if rank not in seen or seen[rank][0].number != beat.number:
                    seen[rank] = beat, now
                elif now - seen[rank][1] > _LIMIT:
                    self._give_up(rank, "has died or does not answer")
            self._find_hanging({rank: _Beat.read(value) for rank, value in beats.items()})
        self._store.set(_key(self._rank), f"{count + 1} {self._state} 0")

    def _watch_store(self, beating: threading.Thread) -> None:
        """Notice that the process that keeps the store is frozen; reading from it then waits forever."""
        while beating.is_alive():
            time.sleep(_EVERY)
            if time.monotonic() - self._answered > _LIMIT:
                self._give_up(0, "does not answer")

    def _overdue(self) -> bool:
        limit = _LIMIT
        if (before := self._seconds.get(self._state)) is not None:
            limit = max(_LIMIT, _SLOWER * max(before)) if len(before) == before.maxlen else float("inf")
        return time.monotonic() - self._since > limit

    def _find_hanging(self, beats: dict[int, _Beat]) -> None:
        """Give up a process whose step or evaluation takes too long while this one waits for it."""
        if self._state == "wait" and self._overdue():
            for rank, beat in beats.items():
                if beat.state in _BEFORE and beat.overdue == "1":
                    self._give_up(rank, f"has not finished its {beat.state} for {_LIMIT:.0f} s or more")

    def _give_up(self, rank: int, why: str) -> None:
        """End this process; one of those that remain says why."""
        if self._rank == (1 if rank == 0 else 0):
            logging.getLogger("messi").error(
                "messi: Process %d of %d %s, so the others have stopped. Repeat the command to resume.",
                rank,
                self._size,
                why,
            )
        os._exit(2)


def _key(rank: int) -> str:
    return f"messi/{attempt()}/beat/{rank}"


def _gone(rank: int) -> str:
    return f"messi/{attempt()}/gone/{rank}"


def attempt() -> str:
    """Return how often torchrun has started the processes again; the store keeps what earlier ones wrote."""
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")


def _connect(size: int) -> TCPStore:
    """Connect to the store that the processes met at; the process group's own connection may be waiting."""
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return TCPStore(address, port, size, is_master=False, timeout=timedelta(seconds=_LIMIT))
