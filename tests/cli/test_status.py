"""``messi status``, and the same status in the terminal of a command that executes a plan."""

import os
import pty
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from messi.cli.common.plan_progress import plan_progress
from messi.core.rundir import RunDir
from messi.experiments.domain_growth import DomainGrowth
from messi.studies.common.plan_file import write_plan
from messi.sweeps.launchers.local import Local
from messi.sweeps.plan import Plan
from tests.command import messi
from tests.studies.made_runs import made_results

GROWTH = DomainGrowth(scale="small")


def made(labels: object) -> object:
    """Return one done, one failed and one started run; the others wait."""
    number = next(place for place, run in enumerate(GROWTH.runs()) if run.labels == labels)
    done = {"result": {"source_val": {"a": 0.5, "b": 0.7}, "target": {"t": 0.9}}}
    return {0: done, 1: "Traceback\nMessiError: No [disk] space.", 2: "started"}.get(number)


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    write_plan(GROWTH, tmp_path)
    made_results(tmp_path, GROWTH, made)  # type: ignore[arg-type]
    return Plan(tmp_path, GROWTH.runs())


def test_the_status_in_words_is_the_same_with_and_without_the_list_of_runs(plan: Plan) -> None:
    done, failed, started = plan.runs[:3]
    os.utime(plan.path(started) / "run.json", (1e9, 1e9))
    printed = messi("status", plan.folder)
    assert printed.returncode == 0
    lines = printed.stdout.splitlines()
    assert lines[0] == "runs     12: 1 done, 1 stopped, 1 failed, 9 waiting"
    assert lines[1] == "left     no run is running; repeat the command to continue"
    words = "  ".join(f"{key} {value}" for key, value in done.labels.items())
    assert lines[2] == f"best     validation 60.0% on the source domains: {words}"
    assert lines[3].startswith("stopped  ")
    assert "step 0/150, last written " in lines[3]
    assert lines[4:] == [f"failed   {failed.name}: MessiError: No [disk] space."]
    assert "90" not in lines[2]  # never the target
    plan.write_run_list()
    again = messi("status", plan.folder).stdout.splitlines()
    assert [line.partition(", last")[0] for line in again] == [line.partition(", last")[0] for line in lines]


def test_the_status_of_a_listed_plan_does_not_load_torch(plan: Plan) -> None:
    plan.write_run_list()
    code = "import sys; from messi.cli.main import main; main(sys.argv[1:]); sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, "status", str(plan.folder)], check=True, capture_output=True)
    assert done.stdout.startswith(b"runs     12: 1 done")


def test_a_folder_without_a_plan_is_reported(tmp_path: Path) -> None:
    printed = messi("status", tmp_path)
    assert printed.returncode == 2
    assert printed.stderr.strip() == (
        f"messi: {tmp_path} is not a plan: plan.json is missing. Name the folder of a plan."
    )


def test_a_report_is_possible_while_a_run_is_running_and_another_is_damaged(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("messi.studies.common.output.MOST_LISTED", 3)
    done, failed, started = (RunDir(plan.path(run)) for run in plan.runs[:3])
    started.records.write_bytes(b'{"kind": "train", "st')
    page = plan.folder / "report.html"
    with started.locked():
        assert messi("report", plan.folder).returncode == 0
        assert "1 done, 1 failed, 1 started, 9 waiting" in page.read_text()
        assert "3 of 12 runs; those that are not done come first." in page.read_text()
        for name in (failed.path.name, started.path.name):
            assert f">{name}<" in page.read_text()
        assert f">{done.path.name}<" not in page.read_text()
        done.result.write_bytes(done.result.read_bytes()[:-20])
        assert messi("report", plan.folder).returncode == 0
        assert "2 failed, 1 started, 9 waiting" in page.read_text()
        assert f"{done.result} is damaged: " in page.read_text()


def test_a_terminal_shows_the_status_live_and_a_last_line_when_interrupted(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "150")
    ours, theirs = pty.openpty()
    shown: list[bytes] = []
    reader = threading.Thread(target=lambda: shown.extend(iter(lambda: _read(ours), b"")))
    reader.start()
    with os.fdopen(theirs, "w") as terminal, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", terminal)
        with pytest.raises(KeyboardInterrupt):
            interrupt(plan)
    reader.join()
    os.close(ours)
    text = b"".join(shown).decode().replace("\r\n", "\n")
    assert text.startswith("1 of 12 runs are already finished\nruns to do: 11, 1 at a time on cpu\n")
    assert "12: 1 done, 1 running, 1 failed, 9 waiting" in text  # while it runs
    assert f"failed   {plan.runs[3].name}: The [second] failure." in text  # the last status stays
    assert "12: 1 done, 1 running, 2 failed, 8 waiting" in text
    assert text.endswith("1 of 12 runs are finished\n")


def interrupt(plan: Plan) -> None:
    """Execute a plan until a run fails and the user interrupts it."""
    with plan_progress(plan, Local(jobs=1, devices=("cpu",))):
        plan.note_failure(plan.runs[3], "The [second] failure.")
        raise KeyboardInterrupt


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # the other end was closed
        return b""
