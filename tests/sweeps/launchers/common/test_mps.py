"""Several processes share a GPU."""

import os
import sys
from pathlib import Path

import pytest

from messi.sweeps.launchers.common import mps
from messi.sweeps.launchers.common.mps import shared_gpu


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A daemon that only logs its arguments and input."""
    log, control = tmp_path / "calls", tmp_path / "nvidia-cuda-mps-control"
    control.write_text(f'#!/bin/sh\necho "$1 $(cat) $CUDA_MPS_PIPE_DIRECTORY" >> {log}\n')
    control.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)
    return log


def test_a_private_daemon_lives_as_long_as_the_block(calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mps, "_PROBE", "")
    with shared_gpu() as works:
        folder = os.environ["CUDA_MPS_PIPE_DIRECTORY"]
        assert works
        assert Path(folder).is_dir()
    assert "CUDA_MPS_PIPE_DIRECTORY" not in os.environ
    assert not Path(folder).exists()
    assert calls.read_text().splitlines() == [f"-d  {folder}", f" quit {folder}"]


def test_the_daemon_also_ends_when_a_run_fails(calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mps, "_PROBE", "")
    with pytest.raises(KeyError), shared_gpu():
        raise KeyError
    assert "quit" in calls.read_text()
    assert "CUDA_MPS_PIPE_DIRECTORY" not in os.environ


def test_a_daemon_that_does_not_work_is_not_used(calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mps, "_PROBE", "raise SystemExit(1)")
    with shared_gpu() as works:
        assert not works
        assert "CUDA_MPS_PIPE_DIRECTORY" not in os.environ
    assert "quit" in calls.read_text()


def test_a_daemon_in_use_is_kept(calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", "/theirs")
    with shared_gpu() as works:
        assert works
    assert os.environ["CUDA_MPS_PIPE_DIRECTORY"] == "/theirs"
    assert not calls.exists()


def test_without_the_program_nothing_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent / "nowhere"))
    monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)
    with shared_gpu() as works:
        assert not works
