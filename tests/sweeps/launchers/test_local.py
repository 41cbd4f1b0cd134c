"""A plan on this machine: some runs fail, some processes die, and the launcher itself is killed."""

import contextlib
import fcntl
import json
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from messi.algorithms.common.base import ALGORITHMS
from messi.algorithms.erm import ERM
from messi.core.errors import MessiError
from messi.core.rundir import RunDir
from messi.core.tensorfile import read_tensors
from messi.data.datasets.arrays import Arrays
from messi.data.datasets.two_subsets import TwoSubsets
from messi.engine.config import RunConfig, TrainingConfig
from messi.engine.run import run
from messi.sweeps.launchers.common.run_process import RunProcess, _work
from messi.sweeps.launchers.local import Local
from messi.sweeps.plan import Outcome, Plan, PlannedRun

DIES = """
import os
import signal
from dataclasses import dataclass
from messi.algorithms.erm import ERM

class Dies(ERM):
    @dataclass(frozen=True, kw_only=True)
    class Config(ERM.Config):
        pass

    def loss(self, batch):
        if batch.step == 7:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().loss(batch)
"""
BEFORE_TRAINING = """
    def __init__(self, *parts, **more):
        os.kill(os.getpid(), signal.SIGKILL)
"""


def config(seed: int = 0, *, target: str = "a1", steps: int = 12) -> RunConfig:
    training = TrainingConfig(steps=steps, evaluate_every=4)
    return RunConfig(
        data=TwoSubsets(per_domain=40), target=(target,), algorithm=ERM.Config(), training=training, seed=seed
    )


def launch(plan: Plan, *, jobs: int = 1, on_end: Callable[[Outcome], None] = lambda _outcome: None) -> list[Outcome]:
    Local(jobs=jobs, devices=("cpu",)).launch(plan, on_end)
    return plan.outcomes()


def planned(seed: int, **changes: object) -> PlannedRun:
    return PlannedRun({"method": "ERM", "seed": seed}, replace(config(seed), **changes))  # type: ignore[arg-type]


def test_a_failed_or_killed_run_does_not_stop_the_others(tmp_path: Path) -> None:
    (tmp_path / "dies.py").write_text(DIES)
    dies = ALGORITHMS.config(str(tmp_path / "dies.py"))()
    runs = [planned(0), planned(1, target=("nowhere",)), planned(2, algorithm=dies), planned(3)]
    plan, ended = Plan(tmp_path / "plan", runs), []

    def on_end(outcome: Outcome) -> None:
        ended.append(outcome.labels["seed"])

    outcomes = launch(plan, jobs=2, on_end=on_end)
    assert [outcome.state for outcome in outcomes] == ["done", "failed", "failed", "done"]
    assert "nowhere" in outcomes[1].reason
    assert outcomes[2].reason == "The process ended with SIGKILL; the machine may have run out of memory."
    assert sorted(ended) == [0, 1, 2, 3]
    alone = run(config(3), out=tmp_path / "alone", device="cpu")
    assert outcomes[3].result().target == alone.target

    before = (outcomes[0].path / "result.json").stat().st_mtime_ns
    again = launch(Plan(tmp_path / "plan", [planned(0), planned(1)]), jobs=2)
    assert [outcome.state for outcome in again] == ["done", "done"]
    assert (outcomes[0].path / "result.json").stat().st_mtime_ns == before


def test_a_process_that_is_asked_to_stop_reports_it_and_its_run_is_resumed(tmp_path: Path) -> None:
    (tmp_path / "dies.py").write_text(DIES.replace("SIGKILL", "SIGTERM"))
    plan = Plan(tmp_path / "plan", [planned(0, algorithm=ALGORITHMS.config(str(tmp_path / "dies.py"))())])
    (outcome,) = launch(plan)
    assert (outcome.state, outcome.reason) == ("failed", "The process ended with SIGTERM.")
    (outcome,) = launch(plan)  # step 7 is in the checkpoint, so it is not repeated
    assert outcome.state == "done"


def test_a_process_that_is_stopped_before_it_trains_reports_it(tmp_path: Path) -> None:
    (tmp_path / "dies.py").write_text((DIES + BEFORE_TRAINING).replace("SIGKILL", "SIGTERM"))
    plan = Plan(tmp_path / "plan", [planned(0, algorithm=ALGORITHMS.config(str(tmp_path / "dies.py"))())])
    (outcome,) = launch(plan)
    assert (outcome.state, outcome.reason) == ("failed", "The process ended with SIGTERM.")


WAITS = """
import signal
import time
from pathlib import Path
from messi import ERM

class Waits(ERM):
    class Config(ERM.Config):
        pass

    def loss(self, batch):
        handler = signal.getsignal(signal.SIGTERM)
        # The first signal to a run restores the handler that was set before it.
        while batch.step == 7 and not Path(__file__).with_name("open").exists() and (
            signal.getsignal(signal.SIGTERM) is handler
        ):
            time.sleep(0.01)
        return super().loss(batch)
"""
KILLED_LATER = """
import json
from pathlib import Path
from messi.engine.config import RunConfig
from messi.sweeps.launchers.local import Local
from messi.sweeps.plan import Plan, PlannedRun

if __name__ == "__main__":
    config = RunConfig.from_dict(json.loads({config!r}), files=[{file!r}])
    Local(jobs=1, devices=("cpu",)).launch(Plan(Path({folder!r}), [PlannedRun({{"method": "ERM", "seed": 0}}, config)]))
"""


def test_a_killed_plan_is_resumed_to_the_same_bits(tmp_path: Path) -> None:
    """The plan is killed during the seventh step, which ends when the run has received its SIGTERM."""
    (tmp_path / "waits.py").write_text(WAITS)
    waits = planned(0, algorithm=ALGORITHMS.config(str(tmp_path / "waits.py"))())
    plan = Plan(tmp_path / "plan", [waits])
    text, file = json.dumps(waits.config.to_dict()), str(tmp_path / "waits.py")
    script = KILLED_LATER.format(config=text, file=file, folder=str(plan.folder))
    (tmp_path / "script.py").write_text(script)
    process = subprocess.Popen([sys.executable, str(tmp_path / "script.py")])
    folder = plan.path(waits)
    while not (folder / "last.safetensors").exists():
        assert process.poll() is None
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    with (folder / "lock").open() as lock:  # until its worker has saved a checkpoint and exited
        fcntl.flock(lock, fcntl.LOCK_EX)
    assert plan.outcome(waits).state == "started"
    (tmp_path / "open").touch()
    assert [outcome.state for outcome in launch(plan)] == ["done"]
    run(waits.config, out=tmp_path / "alone", device="cpu")
    for name in ("records.jsonl", "result.json"):
        assert (folder / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()
    weights, alone = (read_tensors(place / "model.safetensors")[0] for place in (folder, tmp_path / "alone"))
    assert all(torch.equal(weights[name], value) for name, value in alone.items())


KILLED = """
import json, os, signal
from pathlib import Path
from messi.engine.config import RunConfig
from messi.sweeps.launchers.common.run_process import RunProcess
from messi.sweeps.launchers.local import Local
from messi.sweeps.plan import Plan, PlannedRun

def killed(*_):
    os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    start, begin, moment = RunProcess.start, RunProcess.begin, {moment!r}
    if moment == "started":
        RunProcess.start = lambda *parts: killed(start(*parts))
    if moment == "handed out":
        RunProcess.begin = lambda *parts: killed(begin(*parts))
    configs = [RunConfig.from_dict(json.loads(text)) for text in {configs!r}]
    runs = [PlannedRun({{"seed": seed}}, config) for seed, config in enumerate(configs)]
    Local(jobs=1, devices=("cpu",)).launch(Plan(Path({folder!r}), runs), killed)
"""


@pytest.mark.parametrize(
    ("moment", "states"),
    [("started", ["waiting"] * 2), ("handed out", ["waiting"] * 2), ("first run done", ["done", "waiting"])],
)
def test_workers_end_when_their_plan_is_killed_early(tmp_path: Path, moment: str, states: list[str]) -> None:
    """A worker loads its modules for seconds, and the plan is killed meanwhile. Its run would take an hour."""
    first = config() if moment == "first run done" else config(steps=10**6)
    configs = [first, config(seed=1, steps=10**6)]
    plan = Plan(tmp_path / "plan", [PlannedRun({"seed": seed}, one) for seed, one in enumerate(configs)])
    texts = [json.dumps(one.to_dict()) for one in configs]
    script = KILLED.format(moment=moment, configs=texts, folder=str(plan.folder))
    (tmp_path / "script.py").write_text(script)
    command = [sys.executable, str(tmp_path / "script.py")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    try:
        process.communicate(
            timeout=180
        )  # returns when all processes that share the output have ended, workers included
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert [outcome.state for outcome in plan.outcomes()] == states
    for planned_run in plan.runs:
        with RunDir(plan.path(planned_run)).locked():
            pass


def test_a_failure_is_deleted_when_another_process_has_finished_the_run(tmp_path: Path) -> None:
    plan = Plan(tmp_path / "plan", [planned(0)])
    plan.note_failure(plan.runs[0], "Another process was working on it.")
    run(plan.runs[0].config, out=plan.path(plan.runs[0]), device="cpu")
    assert [outcome.state for outcome in launch(plan)] == ["done"]
    assert list(plan.folder.glob("failed/*")) == []


def test_a_finished_run_whose_process_died_has_not_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker may die before it reports the end, or another process may finish the run."""
    real, ended = RunProcess.answer, list[Outcome]()
    monkeypatch.setattr(RunProcess, "answer", lambda worker: real(worker) or "The process ended.")
    plan = Plan(tmp_path / "plan", [planned(0)])
    launch(plan, on_end=ended.append)
    assert [outcome.state for outcome in ended] == ["done"]
    assert list(plan.folder.glob("failed/*")) == []


def test_a_worker_exits_quietly_when_the_plan_no_longer_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example after Ctrl-C at the very end of a run, which is then finished."""
    never = "messi.sweeps.launchers.common.run_process._stop_with_parent"  # the parent is that of the tests
    monkeypatch.setattr(never, lambda: None)
    monkeypatch.setattr(logging.getLogger("messi"), "handlers", [])
    ours, theirs = multiprocessing.Pipe()
    ours.send((config().to_dict(), str(tmp_path / "run"), {}))
    ours.close()
    _work(theirs, "cpu", 1)
    assert RunDir(tmp_path / "run").state() == "done"


def test_a_note_names_its_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    training = TrainingConfig(steps=4, evaluate_every=2, averaging="swad")
    plan = Plan(tmp_path / "plan", [planned(seed, training=training) for seed in (0, 1)])
    launch(plan)
    lines = [line for line in capfd.readouterr().err.splitlines() if "SWAD found no valley" in line]
    assert [line.partition(": ")[0] for line in lines] == [plan.path(run).name for run in plan.runs]


def test_runs_share_the_threads_of_the_plan_and_finished_runs_need_no_data(tmp_path: Path) -> None:
    labels, domains = np.arange(60) % 2, np.repeat(["a1", "b1", "c1"], 20)
    np.savez(tmp_path / "data.npz", inputs=np.eye(60), labels=labels, domains=domains)
    plan = Plan(tmp_path / "plan", [planned(0, data=Arrays(path=str(tmp_path / "data.npz")))])
    (outcome,) = launch(plan)
    assert outcome.state == "done"
    assert torch.get_num_threads() == 1, "OMP_NUM_THREADS decides, however many cores there are"
    assert RunDir(outcome.path).read_timing().device == "CPU, 1 threads"
    (tmp_path / "data.npz").unlink()
    assert [outcome.state for outcome in launch(plan)] == ["done"]


def test_two_runs_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MessiError, match="several are called 'ERM_seed0"):
        Plan(tmp_path, [planned(0), planned(0)])


@pytest.mark.parametrize("gpus", [0, 2])
def test_only_devices_of_this_machine_are_accepted(gpus: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    here = ("cpu", "cuda", "cuda:0", "cuda:1") if gpus else ("cpu",)
    assert Local(devices=here).describe(9).endswith(f"{len(here)} at a time on {', '.join(here)}")
    assert Local().describe(9) == ("2 at a time on cuda:0, cuda:1" if gpus else "1 at a time on cpu")
    for wrong in {"foo", "cuda", "cuda:1", "cuda:2", "cuda:-1", "mps", ""} - set(here):
        with pytest.raises(MessiError) as raised:
            Local(devices=("cpu", wrong))
        assert str(raised.value).startswith(f"There is no device named '{wrong}'; available: {', '.join(here)}.")


@pytest.mark.parametrize("jobs", [0, -1])
def test_there_must_be_at_least_one_job(jobs: int) -> None:
    with pytest.raises(MessiError, match=f"jobs must be at least 1, but is {jobs}"):
        Local(jobs=jobs)
