"""A run that was killed anywhere ends, after the same command again, bit for bit like one that was not."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

DRIVER = Path(__file__).with_name("driver.py")
FILES = ("model.safetensors", "last.safetensors", "records.jsonl", "result.json", "run.json")


def drive(folder: Path, *places: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(DRIVER), str(folder), *places]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in FILES}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("undisturbed")
    done = drive(folder / "run")
    assert done.returncode == 0, done.stderr
    return contents(folder / "run")


@pytest.mark.parametrize(
    "places",
    [
        pytest.param(["step:1", "step:7", "step:22"], id="between steps, three times"),
        pytest.param(["sync:1"], id="while the run folder is described"),
        pytest.param(["save:1", "save:2"], id="in the middle of writing the model, then the first checkpoint"),
        pytest.param(["save:3", "sync:9"], id="in the middle of a later checkpoint, then before a rename"),
        pytest.param(["step:23"], id="between the last step and the final evaluation"),
    ],
)
def test_killed_and_continued_equals_undisturbed(
    tmp_path: Path, undisturbed: dict[str, bytes], places: list[str]
) -> None:
    folder = tmp_path / "run"
    for place in places:
        assert drive(folder, place).returncode == -signal.SIGKILL
    done = drive(folder)
    assert done.returncode == 0, done.stderr
    assert contents(folder) == undisturbed
    assert list(folder.glob("*.tmp")) == []


@pytest.mark.parametrize("how", ["int", "term"])
def test_a_request_to_stop_ends_cleanly_and_the_run_goes_on_from_that_very_step(
    tmp_path: Path, undisturbed: dict[str, bytes], how: str
) -> None:
    folder = tmp_path / "run"
    stopped = drive(folder, f"{how}:7")
    assert stopped.returncode == 130
    assert "Stopped after step 8 of 23; the state is saved. Run the same command again to go on." in stopped.stderr
    assert "Traceback" not in stopped.stderr
    done = drive(folder)
    assert "going on after step 8 of 23" in done.stdout
    assert contents(folder) == undisturbed


def test_a_finished_command_says_so_and_changes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    drive(folder)
    before = {file: (file.stat().st_mtime_ns, file.read_bytes()) for file in folder.rglob("*") if file.is_file()}
    again = drive(folder)
    assert again.returncode == 0
    assert "finished already; nothing was done" in again.stdout
    assert {f: (f.stat().st_mtime_ns, f.read_bytes()) for f in folder.rglob("*") if f.is_file()} == before
