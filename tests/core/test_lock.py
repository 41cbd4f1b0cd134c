"""The lock between processes: who waits, who is refused, and what remains of the lock file."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

if sys.platform != "win32":
    import fcntl

from messi.core.errors import MessiError
from messi.core.lock import BusyError, always, is_held, locked

HOLD = """
import sys
from pathlib import Path
from messi.core.lock import locked

with locked(Path("work"), Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def held_elsewhere(lock: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", HOLD, str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_second_process_is_refused_until_the_first_dies_however_it_dies(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with held_elsewhere(lock) as process:
        with pytest.raises(BusyError, match=r"^Another process is working on work; wait for it or stop it\.$"):
            locked(Path("work"), lock).__enter__()
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        with locked(Path("work"), lock):
            pass


def test_a_waiting_process_gets_the_lock_when_it_is_released(tmp_path: Path) -> None:
    lock, order = tmp_path / "lock", []

    def second() -> None:
        with locked(tmp_path, lock, wait=True):
            order.append("second")

    thread = threading.Thread(target=second)
    with locked(tmp_path, lock):
        thread.start()
        time.sleep(0.2)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_the_lock_file_stays_or_goes_as_asked_also_after_an_error(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with locked(tmp_path, lock):
        assert lock.exists()
    assert lock.exists()
    with pytest.raises(ValueError, match="inside"), locked(tmp_path, lock, remove=always):
        raise ValueError("inside")
    assert not lock.exists()


def test_only_one_holds_the_lock_even_if_the_lock_file_is_removed(tmp_path: Path) -> None:
    """A lock on a file that was removed in the meantime protects nothing, so it must be acquired again."""
    inside, most = [0], [0]

    def work() -> None:
        for _ in range(30):
            with locked(tmp_path, tmp_path / "lock", wait=True, remove=always):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                time.sleep(0.0005)
                inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]
    assert list(tmp_path.iterdir()) == []


def test_a_link_in_the_place_of_the_lock_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    (tmp_path / "lock").symlink_to(tmp_path / "mine")
    with pytest.raises(MessiError, match=r"^Could not write .*/lock: "):
        locked(tmp_path, tmp_path / "lock").__enter__()
    assert (tmp_path / "mine").read_text() == "precious"


def test_a_lock_file_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(MessiError, match=r"^Could not write .*file/lock: "):
        locked(tmp_path, tmp_path / "file" / "lock").__enter__()


def test_asking_whether_a_lock_is_held_changes_nothing_and_hinders_nobody(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    assert not is_held(lock)
    assert not lock.exists()
    with held_elsewhere(lock) as process:
        before = lock.stat()
        assert is_held(lock)
        assert lock.stat().st_mtime_ns == before.st_mtime_ns
        process.kill()
        process.wait()
        assert not is_held(lock)
    if sys.platform == "win32":
        return
    asking = os.open(lock, os.O_RDONLY)
    fcntl.flock(asking, fcntl.LOCK_SH)  # a process in the middle of is_held
    threading.Timer(0.05, os.close, [asking]).start()
    old = lock.stat().st_mtime_ns
    with locked(tmp_path, lock):
        assert lock.stat().st_mtime_ns > old  # the time of a lock is that of its holder
