"""How far a plan is: states of real runs and processes, and rates from made-up times."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from messi.core.rundir import PLAN, RunDir
from messi.engine.config import RunConfig
from messi.engine.run import run
from messi.sweeps.plan import Plan, PlannedRun
from messi.sweeps.run_states import ListedRun, read_run_list
from messi.sweeps.status import SILENT, Activity, PlanStatus, PlanWatch, RunStatus

HOLD = """
import sys
from pathlib import Path
from messi.core.rundir import RunDir

with RunDir(Path(sys.argv[1])).locked():
    print("held", flush=True)
    sys.stdin.read()
"""


class StopAtStep:
    """Ends a run in the middle, as a crash does."""

    def __init__(self, step: int) -> None:
        self._step = step

    def stepped(self, step: int) -> None:
        if step == self._step:
            raise RuntimeError("stopped")

    def __getattr__(self, _name: str) -> object:
        return lambda *_: None


@contextmanager
def held(folder: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", HOLD, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def age(path: Path, seconds: float) -> None:
    now = path.stat().st_mtime
    os.utime(path, (now - seconds, now - seconds))


def test_states_of_runs_with_real_files_and_processes(quick_config: RunConfig, tmp_path: Path) -> None:
    plan = Plan(tmp_path, [PlannedRun({"seed": seed}, replace(quick_config, seed=seed)) for seed in range(5)])
    done, damaged, failed, begun, _waiting = plan.runs
    for planned in (done, damaged):
        run(planned.config, out=plan.path(planned), device="cpu")
    result = RunDir(plan.path(damaged)).result
    result.write_bytes(result.read_bytes()[:-20])
    plan.note_failure(failed, "Traceback ...\nMessiError: The loss is not finite.")
    with pytest.raises(RuntimeError, match="stopped"):
        run(begun.config, out=plan.path(begun), device="cpu", observers=[StopAtStep(8)])  # type: ignore[list-item]
    records = RunDir(plan.path(begun)).records
    with records.open("ab") as opened:
        opened.write(b'{"kind": "train", "step": 9')  # as a process that is writing leaves it
    watch = PlanWatch(tmp_path, [planned.listed for planned in plan.runs])

    def activities() -> list[Activity]:
        return [status.activity for status in watch.read().runs]

    assert activities() == ["done", "failed", "failed", "stopped", "waiting"]
    with held(plan.path(begun)) as process:
        age(RunDir(plan.path(begun)).description, 10)  # a lock taken after run.json was written: the run was resumed
        status = watch.read().runs[3]
        assert (status.activity, status.step, status.resumed, status.speed) == ("running", 8, True, None)
        age(plan.path(begun) / "lock", 20)
        status = watch.read().runs[3]
        assert status.speed == pytest.approx(8 / (status.written - status.began))
        process.kill()
        process.wait()
        assert activities()[3] == "stopped"
    (plan.path(begun) / "lock").unlink()  # as in a folder that another machine sent back
    assert activities()[3] == "running"
    for file in (RunDir(plan.path(begun)).description, records):
        age(file, SILENT + 1)
    assert activities()[3] == "stopped"
    found = watch.read()
    assert str(result) in found.runs[1].reason
    assert found.best is found.runs[0]
    source = RunDir(plan.path(done)).read_result().source_val
    assert found.runs[0].validation == pytest.approx(sum(source.values()) / len(source))
    evaluated = [r for r in RunDir(plan.path(begun)).read_records() if getattr(r, "role", "") == "source_val"]
    domains = [r.accuracy for r in evaluated if r.kind == "evaluation" and r.step == 5]  # type: ignore[union-attr]
    assert found.runs[3].validation == pytest.approx(sum(domains) / len(domains))


def made(activity: Activity, *, steps: int = 100, step: int = 0, seconds: float = 0.0, **more: object) -> RunStatus:
    run = ListedRun(name="a", labels={"seed": 0}, steps=steps, config="")
    return RunStatus(run=run, activity=activity, step=step, began=1000.0, written=1000.0 + seconds, **more)  # type: ignore[arg-type]


def test_rate_and_time_left_follow_from_finished_runs_and_what_runs_now() -> None:
    done = [made("done", seconds=50.0), made("done", steps=200, seconds=100.0)]
    slow = [made("done", seconds=90_000.0, resumed=True), made("done", steps=0, seconds=3.0)]  # a night; an average
    running = [made("running", step=50, seconds=20.0), made("running", step=50, seconds=30.0)]
    others = [made("waiting"), made("stopped", step=60), made("failed"), made("paused", step=30)]
    status = PlanStatus([*done, *slow, *running, *others], now=2000.0)
    assert status.runs_per_hour == pytest.approx(3600 * 2 / 50)
    assert status.seconds_left == pytest.approx((50 + 50 + 100 + 40) * 0.5 / 2)
    assert [run.speed for run in running] == pytest.approx([2.5, 50 / 30])
    first = PlanStatus([*running, made("waiting")], now=2000.0)  # nothing is finished: from those that run
    assert first.seconds_left == pytest.approx(200 * 0.5 / 2)
    idle = PlanStatus([*done, made("waiting")], now=2000.0)
    assert (idle.runs_per_hour, idle.seconds_left) == (None, None)


def test_the_list_of_runs_is_that_of_the_plan_or_refused(quick_config: RunConfig, tmp_path: Path) -> None:
    plan = Plan(
        tmp_path, [PlannedRun({"seed": seed, "rate": 0.5}, replace(quick_config, seed=seed)) for seed in (0, 1)]
    )
    (tmp_path / PLAN).write_text("{}")
    assert read_run_list(tmp_path) is None
    plan.write_run_list()
    assert read_run_list(tmp_path) == tuple(planned.listed for planned in plan.runs)
    file = tmp_path / "runs.json"
    whole = file.read_bytes()
    file.write_bytes(whole.replace(b'"seed": 1', b'"seed": 3', 1))
    assert read_run_list(tmp_path) is None
    file.write_bytes(whole)
    (tmp_path / PLAN).write_text('{"other": 1}')
    assert read_run_list(tmp_path) is None
