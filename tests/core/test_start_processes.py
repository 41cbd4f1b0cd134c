"""A command that is started once per process: how it ends, and what is said of it."""

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from messi.core.errors import MessiError
from messi.core.start_processes import require_devices, run_in_processes


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file for a shell script that is started instead of Python, which would take longer."""
    script = tmp_path / "program"
    script.touch()
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(sys, "executable", str(script))
    return script


def test_every_process_knows_its_place(program: Path, tmp_path: Path) -> None:
    program.write_text(f'#!/bin/sh\necho "$RANK $LOCAL_RANK $WORLD_SIZE $MASTER_ADDR $*" > {tmp_path}/$RANK\n')
    assert run_in_processes(["train", "--devices", "3"], 3) == 0
    said = [(tmp_path / str(rank)).read_text().strip() for rank in range(3)]
    assert said == [f"{rank} {rank} 3 127.0.0.1 -m messi train --devices 3" for rank in range(3)]


def test_the_others_end_when_one_is_killed(program: Path) -> None:
    program.write_text("#!/bin/sh\nif [ $RANK = 1 ]; then kill -9 $$; fi\nexec sleep 60\n")
    start = time.monotonic()
    with pytest.raises(MessiError, match=r"Process 1 of 3 ended with SIGKILL, so the others have stopped; the machine"):
        run_in_processes([], 3)
    assert time.monotonic() - start < 10


def test_the_exit_code_is_that_of_the_leader_if_it_has_one(program: Path) -> None:
    program.write_text("#!/bin/sh\nif [ $RANK = 0 ]; then sleep 0.5; exit 130; fi\nexit 2\n")
    assert run_in_processes([], 2) == 130


def test_a_request_to_stop_reaches_the_leader_once(program: Path, tmp_path: Path) -> None:
    program.write_text(
        f"#!/bin/sh\ntrap 'echo stop >> {tmp_path}/$RANK; exit 130' TERM\ntouch {tmp_path}/ready$RANK\n"
        f"if [ $RANK = 1 ]; then until [ -e {tmp_path}/ready0 ]; do :; done; kill -TERM $PPID; fi\n"
        "for i in 1 2 3 4 5 6 7 8 9; do sleep 0.2; done\n"
    )
    assert run_in_processes([], 2) == 130
    assert (tmp_path / "0").read_text() == "stop\n"
    assert not (tmp_path / "1").exists()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert not [key for key in os.environ if key == "RANK"]


def test_a_request_to_stop_before_the_leader_has_started_reaches_it(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a handler at that time, this process would die of it."""
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/$RANK\nsleep 9\n")
    start = subprocess.Popen

    def start_late(*arguments: Any, **options: Any) -> Any:
        if options["env"]["RANK"] == "0":
            signal.raise_signal(signal.SIGTERM)
        return start(*arguments, **options)

    monkeypatch.setattr(subprocess, "Popen", start_late)
    with pytest.raises(MessiError, match=r"^Process 0 of 2 ended with SIGTERM, so the others have stopped"):
        run_in_processes([], 2)


@pytest.mark.parametrize("device", ["cpu:0", "cuda:1"])
def test_a_single_device_is_refused(device: str) -> None:
    with pytest.raises(MessiError, match="--devices chooses the GPUs itself"):
        require_devices(2, device)
