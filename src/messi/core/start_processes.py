"""Start a command once per process of a group, as torchrun does, and watch over them."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

import torch

from messi.core.errors import MessiError
from messi.core.hardware import local_devices
from messi.core.heartbeat import SUPERVISOR

_POLL = 0.1
_GRACE = 20.0
"""Seconds for the other processes to end by themselves after one has failed."""


def require_devices(number: int, device: str | None) -> None:
    """Raise unless this machine has a device for each process; a CPU is shared by all."""
    kind = (device or local_devices()[0]).partition(":")
    if kind[1] and device:
        raise MessiError(f"--devices chooses the GPUs itself; use --device {kind[0]}, or omit --devices.")
    if kind[0] == "cuda" and number > torch.cuda.device_count():
        raise MessiError(
            f"--devices {number} requires as many GPUs, but this machine has {torch.cuda.device_count()}; use fewer, "
            "or --device cpu."
        )


def places_of(number: int) -> list[dict[str, str]]:
    """Return the environment variables of each process of a new group on this machine."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = str(one.getsockname()[1])
    common = {"WORLD_SIZE": str(number), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, SUPERVISOR: str(os.getpid())}
    return [{"RANK": str(rank), "LOCAL_RANK": str(rank), **common} for rank in range(number)]


def run_in_processes(arguments: Sequence[str], number: int) -> int:
    """Run ``messi`` with these arguments in several processes, and return the exit code of the first that fails."""
    environment = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // number)), **os.environ}
    places, command = places_of(number), [sys.executable, "-m", "messi", *arguments]
    children: list[subprocess.Popen[bytes]] = []
    try:
        with _forwarded(children) as (received, early):  # before the first one starts: a signal must not be lost
            for rank, place in enumerate(places):
                child = subprocess.Popen(  # noqa: S603 (this program)
                    command,
                    env=environment | place,
                    stdout=subprocess.DEVNULL if rank else None,
                    start_new_session=True,  # Ctrl-C reaches only this process, which forwards it once
                )
                children.append(child)
                if early:
                    children[0].send_signal(early.pop())
            while True:
                codes = [child.poll() for child in children]
                failed = [rank for rank, code in enumerate(codes) if code]
                if failed or None not in codes:
                    break
                time.sleep(_POLL)
        if len(received) > 1:
            raise KeyboardInterrupt
        return _end(children, failed) if failed else 0
    finally:
        for child in children:
            child.kill()
            child.wait()


def _end(children: Sequence["subprocess.Popen[bytes]"], failed: Sequence[int]) -> int:
    """Wait for the processes that can still end by themselves, and return the exit code for all."""
    killed = [rank for rank in failed if children[rank].returncode < 0]
    if killed:
        name = signal.Signals(-children[killed[0]].returncode).name
        raise MessiError(
            f"Process {killed[0]} of {len(children)} ended with {name}, so the others have stopped"
            f"{'; the machine may have run out of memory' if name == 'SIGKILL' else ''}.",
            "Repeat the command to resume.",
        )
    deadline = time.monotonic() + _GRACE
    while children[0].poll() is None and time.monotonic() < deadline:  # the leader may still save its state
        time.sleep(_POLL)
    return children[0].returncode or children[failed[0]].returncode


@contextmanager
def _forwarded(children: Sequence["subprocess.Popen[bytes]"]) -> Iterator[tuple[list[int], list[int]]]:
    """Send the first SIGINT or SIGTERM to the leader, which stops all; a second one kills them.

    Yield all signals received, and the one that came before there was a leader.
    """
    received: list[int] = []
    early: list[int] = []

    def forward(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        if not children:
            early[:] = [number]
        for child in children[:1] if len(received) == 1 else children:
            child.send_signal(number if len(received) == 1 else signal.SIGKILL)

    before = {number: signal.signal(number, forward) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received, early
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
