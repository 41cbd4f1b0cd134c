"""Repeating the command of a killed run gives the same bits as an uninterrupted run, wherever it was killed."""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from messi.core.records import TrainRecord
from messi.core.rundir import RunDir
from messi.core.tensorfile import read_tensors

Drive = Callable[..., CompletedProcess[str]]
FILES = ("model.safetensors", "last.safetensors", "seen.safetensors", "records.jsonl", "result.json", "run.json")


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in FILES}


@pytest.fixture(scope="module")
def uninterrupted(drive: Drive, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("uninterrupted")
    done = drive(folder / "run")
    assert done.returncode == 0, done.stderr
    return contents(folder / "run")


@pytest.mark.parametrize(
    "places",
    [
        pytest.param(["step:1", "step:7", "step:22"], id="between steps, three times"),
        pytest.param(["sync:1"], id="while the run folder is described"),
        pytest.param(["save:1"], id="in the middle of writing the seen examples"),
        pytest.param(["save:2", "save:2"], id="in the middle of writing the model, then the first checkpoint"),
        pytest.param(["save:4", "sync:9"], id="in the middle of a later checkpoint, then before a rename"),
        pytest.param(["step:23"], id="between the last step and the final evaluation"),
        pytest.param(["hold:model-5 step:8"], id="some steps after that of the model being written"),
        pytest.param(["hold:last-5 step:6", "hold:last-5 step:9"], id="and of the first checkpoint, twice"),
        pytest.param(["hold:last-15 step:19", "hold:last-23 step:23"], id="and of a later one, then at the last"),
    ],
)
def test_a_killed_and_resumed_run_equals_an_uninterrupted_one(
    drive: Drive, tmp_path: Path, uninterrupted: dict[str, bytes], places: list[str]
) -> None:
    folder = tmp_path / "run"
    for place in places:
        assert drive(folder, *place.split()).returncode == -signal.SIGKILL
    done = drive(folder)
    assert done.returncode == 0, done.stderr
    assert contents(folder) == uninterrupted
    assert list(folder.glob("*.tmp")) == []


def test_a_killed_run_that_probes_first_equals_an_uninterrupted_one(drive: Drive, tmp_path: Path) -> None:
    """It is killed in the probe, stopped after its last step, when Adam has no state of the encoder, and killed."""
    options = ("--probe-steps=9", "--layer-decay=0.7", "--head-weight-decay=0.1", "--backbone=mlp")
    assert drive(tmp_path / "whole", *options).returncode == 0
    for place, code in (("step:7", -signal.SIGKILL), ("int:8", 130), ("step:17", -signal.SIGKILL), ("step:99", 0)):
        done = drive(tmp_path / "run", place, *options)
        assert done.returncode == code, done.stderr
        if place == "int:8":
            tensors, description = read_tensors(RunDir(tmp_path / "run").last)
            assert description["step"] == 9
            assert len([name for name in tensors if name.endswith("/exp_avg")]) == 8, "router, experts and classifier"
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


def test_a_run_killed_while_it_saves_the_selected_model_saves_it_again(
    drive: Drive, tmp_path: Path, uninterrupted: dict[str, bytes]
) -> None:
    """If the checkpoint were written before the model, training would resume from it and never save that model."""
    folder, selected = tmp_path / "run", json.loads(uninterrupted["result.json"])["selected_step"]
    killed = drive(folder, f"hold:model-{selected}", f"step:{min(selected + 1, 23)}")
    assert killed.returncode == -signal.SIGKILL
    assert drive(folder).returncode == 0
    assert contents(folder) == uninterrupted


def test_a_process_killed_while_it_writes_keeps_the_earlier_checkpoint(
    drive: Drive, tmp_path: Path, uninterrupted: dict[str, bytes]
) -> None:
    folder = RunDir(tmp_path / "run")
    assert drive(folder.path, "int:7").returncode == 130
    assert read_tensors(folder.last)[1]["step"] == 8
    before, size = folder.last.read_bytes(), folder.records.stat().st_size
    assert drive(folder.path, "hold:last-10", "step:12").returncode == -signal.SIGKILL
    written = max(record.step for record in folder.read_records() if isinstance(record, TrainRecord))
    assert written == 12, "training continued"
    assert folder.records.stat().st_size > size
    assert folder.last.read_bytes() == before
    assert len(list(folder.path.glob("*.tmp"))) == 1
    assert drive(folder.path).returncode == 0
    assert contents(folder.path) == uninterrupted


@pytest.mark.parametrize("how", ["int", "term"])
def test_a_requested_stop_is_clean_and_the_run_resumes_from_that_step(
    drive: Drive, tmp_path: Path, uninterrupted: dict[str, bytes], how: str
) -> None:
    folder = tmp_path / "run"
    stopped = drive(folder, f"{how}:7")
    assert stopped.returncode == 130
    assert (
        "Stopped messi with target b2 after step 8 of 23; the state is saved. Repeat the command to resume."
        in stopped.stderr
    )
    assert "Traceback" not in stopped.stderr
    done = drive(folder)
    assert "resuming after step 8 of 23" in done.stdout
    assert contents(folder) == uninterrupted


def test_a_finished_run_is_reported_and_not_changed(drive: Drive, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    drive(folder)
    before = {file: (file.stat().st_mtime_ns, file.read_bytes()) for file in folder.rglob("*") if file.is_file()}
    again = drive(folder)
    assert again.returncode == 0
    assert "already finished; nothing was done" in again.stdout
    assert {f: (f.stat().st_mtime_ns, f.read_bytes()) for f in folder.rglob("*") if f.is_file()} == before
