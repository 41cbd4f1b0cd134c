import errno
import json
import os
import signal
import threading
from collections.abc import Callable, Mapping
from concurrent import futures
from pathlib import Path
from typing import Any

import pytest
import torch

from messi.core import tensorfile
from messi.core.checksum import METADATA_KEY
from messi.core.errors import MessiError
from messi.core.records import RecordWriter
from messi.core.rundir import RunDir
from messi.core.tensorfile import read_tensors
from messi.engine import loop
from messi.engine.async_writer import AsyncWriter, Snapshot
from messi.engine.config import RunConfig
from messi.engine.interrupt import Interrupted
from messi.engine.run import run

LONG = 60
"""Seconds after which a waiting thread gives up, and its test fails."""


def refuse() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def write_then_fail(write: Callable[[], None]) -> None:
    with AsyncWriter() as writer:
        writer.submit(write)
        raise ValueError("the caller's")


@pytest.fixture
def ending(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Return an event that is set when the block of a writer ends."""
    event, end = threading.Event(), AsyncWriter._end

    def leave(self: AsyncWriter) -> None:
        event.set()
        end(self)

    monkeypatch.setattr(AsyncWriter, "_end", leave)
    return event


def test_a_write_runs_in_parallel_and_is_done_at_the_end_of_the_block() -> None:
    begun, may_end, done = threading.Event(), threading.Event(), []

    def write() -> None:
        begun.set()
        may_end.wait(LONG)
        done.append(threading.current_thread())

    with AsyncWriter() as writer:
        writer.submit(write)
        begun.wait(LONG)
        assert done == []
        may_end.set()
    assert [thread is threading.main_thread() for thread in done] == [False]
    assert not done[0].is_alive()


def test_a_second_write_waits_for_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first write ends only once the caller of the second one waits for it."""
    waited = threading.Event()
    order: list[str] = []
    real = AsyncWriter.wait

    def wait(self: AsyncWriter) -> None:
        if order == ["first begins"]:
            waited.set()
        real(self)

    def first() -> None:
        order.append("first begins")
        begun.set()
        waited.wait(LONG)
        order.append("first ends")

    begun = threading.Event()
    with AsyncWriter() as writer:
        writer.submit(first)
        begun.wait(LONG)
        monkeypatch.setattr(AsyncWriter, "wait", wait)
        writer.submit(lambda: order.append("second"))
        assert order[:2] == ["first begins", "first ends"]
    assert order[2:] == ["second"]


def test_an_error_is_raised_at_the_end_of_the_block() -> None:
    with pytest.raises(OSError, match="No space left"), AsyncWriter() as writer:
        writer.submit(refuse)


def test_an_error_is_raised_by_every_later_call_and_nothing_more_is_written() -> None:
    written: list[int] = []
    writer = AsyncWriter()
    writer.submit(refuse)
    for call in (writer.wait, writer.check, lambda: writer.submit(lambda: written.append(1))):
        with pytest.raises(OSError, match="No space left"):
            call()
    writer._end()
    assert written == []


def test_a_check_does_not_wait() -> None:
    may_end, done = threading.Event(), []
    with AsyncWriter() as writer:
        writer.check()
        writer.submit(lambda: done.append(may_end.wait(LONG)))
        writer.check()
        assert done == []
        may_end.set()


@pytest.mark.parametrize("fails", [False, True])
def test_an_error_of_the_caller_waits_for_the_current_write_and_takes_precedence(
    ending: threading.Event, *, fails: bool
) -> None:
    done = []

    def write() -> None:
        done.append(ending.wait(LONG))
        if fails:
            refuse()

    with pytest.raises(ValueError, match="the caller's"):
        write_then_fail(write)
    assert done == [True]


def test_no_write_outlives_the_block_even_if_ctrl_c_is_pressed_while_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    may_end, done, presses = threading.Event(), [], iter(range(3))
    real = futures.ThreadPoolExecutor.shutdown

    def shutdown(self: futures.ThreadPoolExecutor) -> None:
        if next(presses, None) is not None:
            raise KeyboardInterrupt
        may_end.set()
        real(self)

    monkeypatch.setattr(futures.ThreadPoolExecutor, "shutdown", shutdown)
    with pytest.raises(ValueError, match="the caller's"):
        write_then_fail(lambda: done.append(may_end.wait(LONG)))
    assert done == [True]


@pytest.mark.parametrize(
    "device",
    [
        "cpu",
        pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")),
    ],
)
def test_later_changes_of_the_tensors_do_not_reach_a_snapshot(device: str) -> None:
    work = torch.eye(2048, device=device)
    tensors = {"a": torch.ones(2048, 2048, device=device), "turned": torch.arange(6.0, device=device).view(2, 3).T}
    tensors |= {"count": torch.tensor(7.0), "none": torch.empty(0, device=device)}
    for _ in range(20 if device == "cuda" else 1):  # a GPU is still busy with these when the copies are requested
        tensors["a"].copy_(work @ tensors["a"])
    snapshot = Snapshot(tensors)
    for tensor in tensors.values():
        tensor.zero_()
    with futures.ThreadPoolExecutor(1) as thread:
        copies = thread.submit(snapshot.wait).result()
    assert torch.equal(copies["a"], torch.ones(2048, 2048))
    assert torch.equal(copies["turned"], torch.arange(6.0).view(2, 3).T)
    assert copies["count"] == 7
    assert copies["none"].numel() == 0
    assert all(copy.device.type == "cpu" for copy in copies.values())
    assert copies["a"].is_pinned() == (device == "cuda")


class Watcher:
    """Keeps the steps it observes, and acts after one of them."""

    def __init__(self, step: int, act: Callable[[], object]) -> None:
        self.step, self.act = step, act
        self.steps: list[int] = []

    def started(self, step: int, steps: int) -> None: ...

    def stepped(self, step: int) -> None:
        self.steps.append(step)
        if step == self.step:
            self.act()

    def logged(self, step: int, terms: Mapping[str, float]) -> None: ...

    def evaluated(self, step: int, accuracy: float) -> None: ...

    def finished(self) -> None: ...


def last_step(folder: Path) -> int:
    step: int = read_tensors(RunDir(folder).last)[1]["step"]
    return step


def break_checkpoints(monkeypatch: pytest.MonkeyPatch, *, after: int) -> list[str]:
    """Make the write of every later checkpoint fail; return the list of files that are started."""
    begun: list[str] = []
    real = getattr(tensorfile, "save_file")  # noqa: B009

    def save(tensors: Any, path: Path, metadata: Any) -> None:
        begun.append(path.name)
        real(tensors, path, metadata=metadata)
        if path.name.startswith("last") and json.loads(metadata[METADATA_KEY])["step"] > after:
            os.truncate(path, 100)
            refuse()

    monkeypatch.setattr(tensorfile, "save_file", save)
    return begun


def test_a_failed_write_stops_the_run_at_the_next_step_and_nothing_more_is_written(
    tmp_path: Path, quick_config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    writers: list[AsyncWriter] = []

    class Known(AsyncWriter):
        def __init__(self) -> None:
            super().__init__()
            writers.append(self)

    def fails_meanwhile() -> None:
        assert writers[0]._writing is not None
        futures.wait([writers[0]._writing])

    monkeypatch.setattr(loop, "AsyncWriter", Known)
    begun = break_checkpoints(monkeypatch, after=0)
    watcher = Watcher(6, fails_meanwhile)
    folder = RunDir(tmp_path / "run")
    with pytest.raises(MessiError, match=r"Could not write .*last.safetensors: No space left.*repeat the command"):
        run(quick_config, out=folder.path, device="cpu", observers=[watcher])
    assert watcher.steps == [1, 2, 3, 4, 5, 6]
    assert begun == ["seen.safetensors", "model.safetensors", "last.safetensors"]
    assert folder.model.exists()
    assert not folder.last.exists()
    assert not folder.result.exists()
    assert list(folder.path.glob("*.tmp")) == []


@pytest.mark.parametrize("kept", [5, 10])
def test_a_run_whose_last_write_fails_is_unfinished_and_keeps_the_earlier_checkpoint(
    tmp_path: Path, quick_config: RunConfig, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    with monkeypatch.context() as patch:
        break_checkpoints(patch, after=kept)
        with pytest.raises(MessiError, match="No space left"):
            run(quick_config, out=tmp_path / "run", device="cpu")
    assert last_step(tmp_path / "run") == kept
    assert not RunDir(tmp_path / "run").result.exists()
    run(quick_config, out=tmp_path / "run", device="cpu")
    run(quick_config, out=tmp_path / "uninterrupted", device="cpu")
    for name in ("records.jsonl", "model.safetensors", "last.safetensors", "result.json"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "uninterrupted" / name).read_bytes()


def test_records_are_on_the_disk_before_the_checkpoint_that_includes_them(
    tmp_path: Path, quick_config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_disk, counted = [0], []
    sync, real = RecordWriter.sync, getattr(tensorfile, "save_file")  # noqa: B009

    def synced(self: RecordWriter) -> None:
        size = self.path.stat().st_size
        sync(self)
        on_disk.append(size)

    def save(tensors: Any, path: Path, metadata: Any) -> None:
        if path.name.startswith("last"):
            counted.append(json.loads(metadata["messi"])["records_size"])
            assert counted[-1] <= on_disk[-1]
        real(tensors, path, metadata=metadata)

    monkeypatch.setattr(RecordWriter, "sync", synced)
    monkeypatch.setattr(tensorfile, "save_file", save)
    run(quick_config, out=tmp_path / "run", device="cpu")
    assert len(counted) == 3
    assert 0 < counted[0] < counted[1] < counted[2]


def test_a_stopped_run_reports_a_saved_state_only_if_it_is_saved(
    tmp_path: Path, quick_config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = Watcher(7, lambda: os.kill(os.getpid(), signal.SIGINT))
    with monkeypatch.context() as patch:
        break_checkpoints(patch, after=5)
        with pytest.raises(MessiError, match="No space left"):
            run(quick_config, out=tmp_path / "run", device="cpu", observers=[stop])
    assert last_step(tmp_path / "run") == 5
    with pytest.raises(Interrupted, match="Stopped messi with target b2 after step 8 of 12; the state is saved"):
        run(quick_config, out=tmp_path / "run", device="cpu", observers=[stop])
    assert last_step(tmp_path / "run") == 8


def test_a_failed_run_ends_once_its_last_checkpoint_is_complete(
    tmp_path: Path, quick_config: RunConfig, monkeypatch: pytest.MonkeyPatch, ending: threading.Event
) -> None:
    """The write of step 5 starts only after the error of step 6 has left the loop."""
    held: list[bool] = []
    real = getattr(tensorfile, "save_file")  # noqa: B009

    def save(tensors: Any, path: Path, metadata: Any) -> None:
        if threading.current_thread() is not threading.main_thread():  # which writes seen.safetensors before training
            held.append(ending.wait(LONG))
        real(tensors, path, metadata=metadata)

    def fail() -> None:
        raise ValueError("of an observer")

    monkeypatch.setattr(tensorfile, "save_file", save)
    with pytest.raises(ValueError, match="of an observer"):
        run(quick_config, out=tmp_path / "run", device="cpu", observers=[Watcher(6, fail)])
    assert held == [True, True], "the model and the checkpoint of step 5 were written after the error"
    assert last_step(tmp_path / "run") == 5
