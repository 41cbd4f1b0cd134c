"""Watch a call that may hang, fill the memory, execute foreign code or end in a traceback."""

import os
import resource
import signal
import subprocess
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Literal

from .commands import Call, Command, Reply, forget

SECONDS = 15
"""Far more than the half second of the slowest call on undamaged files."""
MEMORY = 400 << 20
"""Bytes that a call may add to this process; the files are some megabytes."""
_ADDRESSES = (2 << 30) + (os.cpu_count() or 1) * (80 << 20)
"""Bytes at which the process is stopped; every thread reserves some."""

Verdict = Literal["refused", "found", "same", "different", "failed"]


@dataclass(frozen=True)
class Outcome:
    """How a call ended."""

    verdict: Verdict
    what: str = ""
    """The kind of failure: traceback, hang, memory, code or message."""
    where: str = ""
    """The last frame of a traceback."""
    detail: str = ""


class Hung(BaseException):
    """A call took too long."""


def watched(command: Command | Call, expected: Reply | None = None, damaged: Path = Path()) -> tuple[Outcome, Reply]:
    """Call a command and judge the result; ``expected`` is the reply on undamaged files."""
    before, reply = _memory(peak=False), Reply(-1, None)
    try:
        with _partner(damaged), _limited_time(), warnings.catch_warnings():
            warnings.simplefilter("default")
            reply = command()
        outcome = _judged(command, reply, expected)
    except Hung:
        outcome = Outcome("failed", "hang", detail=f"no end after {SECONDS} s")
    except Exception as error:  # noqa: BLE001 (a user would see a traceback)
        outcome = _traceback(error)
    forget()
    if Path("canary").exists():
        outcome = Outcome("failed", "code executed")
    elif (grown := _memory(peak=True) - before) > MEMORY:
        outcome = Outcome("failed", "memory", detail=f"{grown >> 20} MiB")
    return outcome, reply


def _traceback(error: Exception) -> Outcome:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    ours = [f for f in traceback.extract_tb(error.__traceback__) if "/messi/" in f.filename]
    last = ours[-1] if ours else frame
    where = f"{last.filename.rpartition('/messi/')[2]}:{last.lineno}"
    return Outcome("failed", type(error).__name__, where, " ".join(str(error).split())[:200])


def _judged(command: Command | Call, reply: Reply, expected: Reply | None) -> Outcome:
    """Judge a call that ended."""
    printed = reply.err + reply.out
    for unwanted in ("Traceback", "\x1b"):
        if unwanted in printed or unwanted in _failures():
            return Outcome("failed", f"{unwanted!r} in the output", detail=repr(printed[-300:]))
    if expected is None or (reply.code, reply.answer) == (expected.code, expected.answer):
        return Outcome("same")
    if reply.code == 2:
        return _one_sentence(reply.err)
    if _tells(command, reply, expected):
        return Outcome("found")
    if reply.code:
        return Outcome("failed", f"exit code {reply.code}", detail=printed[-300:])
    return Outcome("different", detail=_difference(reply.answer, expected.answer))


def _tells(command: Command | Call, reply: Reply, expected: Reply) -> bool:
    """Return whether a command does what is possible and reports the damage."""
    if command.finds:
        return reply.code == 1 and bool(reply.out.strip())
    return bool(command.partial and command.partial(reply.answer, expected.answer))


def _one_sentence(err: str) -> Outcome:
    """Check that the error is the last line, preceded only by progress and notes."""
    lines = err.rstrip("\n").split("\n")
    if lines[-1].startswith("messi: ") and "Warning" not in err:
        return Outcome("refused", detail=lines[-1])
    return Outcome("failed", "message", detail=err[-300:])


def _failures() -> str:
    """Return the reasons that a plan recorded for its failed runs."""
    return "".join(file.read_text() for file in Path("plan/failed").glob("*.txt"))


def _difference(now: Any, then: Any) -> str:
    """Return the first difference between two answers."""
    if isinstance(now, dict) and isinstance(then, dict) and now.keys() == then.keys():
        key = next(key for key in now if now[key] != then[key])
        return f"{key}: {_difference(now[key], then[key])}"
    if isinstance(now, list | tuple) and isinstance(then, list | tuple) and len(now) == len(then):
        place = next(place for place, (one, other) in enumerate(zip(now, then, strict=True)) if one != other)
        return f"[{place}]: {_difference(now[place], then[place])}"
    if isinstance(now, str | bytes) and type(now) is type(then):
        equal = next((n for n, (one, other) in enumerate(zip(now, then, strict=False)) if one != other), 0)
        start = max(0, equal - 20)
        now, then = now[start : start + 60], then[start : start + 60]
    return f"{str(now)[:100]} instead of {str(then)[:100]}"


def _memory(*, peak: bool) -> int:
    """Return the bytes that this process uses and reset the peak, or return the peak since then."""
    if not peak:
        Path("/proc/self/clear_refs").write_text("5")
    name = "VmHWM" if peak else "VmRSS"
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name))


@contextmanager
def limited_memory() -> Iterator[None]:
    """Limit the memory of this process inside the block: a thread may fill it after its call was abandoned."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + _ADDRESSES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@contextmanager
def _limited_time() -> Iterator[None]:
    old = signal.signal(signal.SIGALRM, _ring)
    # Repeated, because the clean-up may hang, too.
    signal.setitimer(signal.ITIMER_REAL, SECONDS, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


def _ring(_number: int, _frame: FrameType | None) -> None:
    raise Hung


@contextmanager
def _partner(path: Path) -> Iterator[None]:
    """Open the other end of a FIFO when the time is up: while Rust waits for one, no signal reaches Python."""
    if not path.is_fifo():
        yield
        return
    script = 'sleep "$1"; while :; do : <> "$0"; sleep 0.1; done'
    with subprocess.Popen(["sh", "-c", script, str(path), str(SECONDS)]) as process:
        try:
            yield
        finally:
            process.kill()
