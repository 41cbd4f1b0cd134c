"""A plan as jobs of a real Slurm, whose one node is this machine: jobs are stopped, requeued and killed."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from messi.algorithms.common.base import ALGORITHMS
from messi.cli.main import main
from messi.core.errors import MessiError
from messi.engine.run import run
from messi.sweeps.launchers import slurm
from messi.sweeps.launchers.local import Local
from messi.sweeps.launchers.slurm import Slurm
from messi.sweeps.plan import Outcome, Plan
from tests.slurm_cluster import INSTALL, missing, slurm_cluster
from tests.sweeps.launchers.test_local import DIES, WAITS, planned

pytest.importorskip("submitit", reason="submitit is not installed; install it with: pip install 'messi-dg[slurm]'")
FILES = ("records.jsonl", "model.safetensors", "result.json")


@pytest.fixture(scope="module")
def _cluster() -> Iterator[None]:
    if missing():
        if os.environ.get("CI"):
            pytest.fail(INSTALL)
        pytest.skip(INSTALL)
    with slurm_cluster():
        yield


@pytest.fixture(autouse=True)
def _ask_often(_cluster: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm, "_ASK_S", 0.5)


def launch(plan: Plan, launcher: Slurm) -> list[Outcome]:
    ended: list[Outcome] = []
    launcher.launch(plan, ended.append)
    assert sorted(outcome.run.name for outcome in ended) == sorted(run.name for run in plan.runs)
    return plan.outcomes()


def wait_for(condition: Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, squeue("%i %T %r")
        time.sleep(0.02)


def assert_same_bits(folder: Path, other: Path) -> None:
    for name in FILES:
        assert (folder / name).read_bytes() == (other / name).read_bytes(), name


def test_detached_stages_end_with_the_bits_of_a_local_plan(tmp_path: Path) -> None:
    """The second run starts from the model of the first, so Slurm must hold it back until the first has ended."""
    first = planned(0)
    second = planned(1, start=first.name)
    plan, local = (Plan(tmp_path / name, [first, second]) for name in ("plan", "local"))
    for stage in plan.stages():
        Slurm(detach=True).launch(stage)
    assert [outcome.state for outcome in plan.outcomes()] != ["done", "done"]
    assert [outcome.state for outcome in launch(plan, Slurm())] == ["done", "done"]
    assert len(list((plan.folder / "slurm" / "batches").iterdir())) == 2, "nothing was submitted twice"
    for stage in local.stages():
        Local(jobs=1, devices=("cpu",)).launch(stage)
    for planned_run in plan.runs:
        assert_same_bits(plan.path(planned_run), local.path(planned_run))
        assert "done" in (plan.folder / "slurm" / f"{planned_run.name}.log").read_text()


DRIVER = """
import json
from pathlib import Path
from messi.engine.config import RunConfig
from messi.sweeps.launchers.slurm import Slurm
from messi.sweeps.plan import Plan, PlannedRun

configs = [RunConfig.from_dict(values, files=[{file!r}]) for values in json.loads({configs!r})]
runs = [PlannedRun({{"method": "ERM", "seed": seed}}, config) for seed, config in enumerate(configs)]
Slurm().launch(Plan(Path({folder!r}), runs))
"""


def test_stopped_and_requeued_jobs_of_a_killed_launcher_end_with_the_same_bits(tmp_path: Path) -> None:
    """All runs wait in step 7. Slurm warns the first of a time limit, requeues the second and preempts the third."""
    (tmp_path / "waits.py").write_text(WAITS)
    waits = ALGORITHMS.config(str(tmp_path / "waits.py"))()
    plan = Plan(tmp_path / "plan", [planned(seed, algorithm=waits) for seed in range(3)])
    configs = json.dumps([planned_run.config.to_dict() for planned_run in plan.runs])
    script = DRIVER.format(file=str(tmp_path / "waits.py"), configs=configs, folder=str(plan.folder))
    driver = subprocess.Popen([sys.executable, "-c", script])
    checkpoints = [plan.path(planned_run) / "last.safetensors" for planned_run in plan.runs]
    wait_for(lambda: all(checkpoint.exists() for checkpoint in checkpoints) or driver.poll() is not None)
    driver.send_signal(signal.SIGKILL)
    assert driver.wait() == -signal.SIGKILL

    time.sleep(1)  # the checkpoint of step 4 exists, step 7 is near
    before = [checkpoint.read_bytes() for checkpoint in checkpoints]
    (job,) = set(squeue("%F"))
    subprocess.run(["scancel", "--signal=USR2", f"{job}_0"], check=True)
    subprocess.run(["scontrol", "requeue", f"{job}_1"], check=True)
    wait_for(lambda: squeue("%T").count("PENDING") == 2)
    subprocess.run(["srun", "--quiet", "--partition=urgent", "--ntasks=3", "true"], check=True)
    wait_for(lambda: squeue("%T") == ["PENDING"] * 3)
    assert not any(checkpoint.read_bytes() == old for checkpoint, old in zip(checkpoints, before, strict=True))
    assert [outcome.state for outcome in plan.outcomes()] == ["started"] * 3
    (tmp_path / "open").touch()
    for number in range(3):  # by default Slurm starts a requeued job after two minutes
        subprocess.run(["scontrol", "update", f"JobId={job}_{number}", "StartTime=now"], check=True)
    assert [outcome.state for outcome in launch(plan, Slurm())] == ["done"] * 3
    assert len(list((plan.folder / "slurm" / "batches").iterdir())) == 1, "nothing was submitted twice"
    for number, planned_run in enumerate(plan.runs):
        run(planned_run.config, out=tmp_path / f"alone{number}", device="cpu")
        assert_same_bits(plan.path(planned_run), tmp_path / f"alone{number}")
        assert "resumed" in (plan.folder / "slurm" / f"{planned_run.name}.log").read_text()


def squeue(field: str) -> list[str]:
    answer = subprocess.run(["squeue", "-h", "-r", f"--format={field}"], capture_output=True, text=True, check=True)
    return answer.stdout.split()


def test_a_job_that_dies_or_is_cancelled_is_recorded_with_its_reason(tmp_path: Path) -> None:
    """Each job has two runs, and dies in the first. Only the second run of the job that nobody cancelled is done."""
    for name, text in (("dies", DIES), ("waits", WAITS)):
        (tmp_path / f"{name}.py").write_text(text)
    dies, waits = (ALGORITHMS.config(str(tmp_path / f"{name}.py"))() for name in ("dies", "waits"))
    cut_off = planned(0, algorithm=waits)
    plan = Plan(tmp_path / "plan", [cut_off, planned(1), planned(2, algorithm=dies), planned(3)])
    launcher = Slurm(runs_per_job=2, at_a_time=2)
    replace(launcher, detach=True).launch(plan)
    wait_for((plan.path(cut_off) / "last.safetensors").exists)
    (job,) = set(squeue("%F"))
    subprocess.run(["scancel", f"{job}_0"], check=True)
    outcomes = launch(plan, launcher)
    assert [outcome.state for outcome in outcomes] == ["failed", "failed", "failed", "done"]
    log = plan.folder.resolve() / "slurm" / "jobs" / f"{job}_0_0_log.out"
    assert (plan.folder.resolve() / "slurm" / f"{cut_off.name}.log").resolve() == log
    node = os.uname().nodename
    cancelled = f"The Slurm job {job}_0 on {node} ended with CANCELLED by a user or an administrator; see {log}."
    assert outcomes[0].reason == cancelled
    # The second launcher submits the run again if its job had already died.
    died = rf"The Slurm job ({job}_1|\d+) on {node} ended with FAILED \(exit code 137:0\); see "
    assert re.match(died, outcomes[2].reason)


def test_a_detached_command_exits_without_results_and_a_repeated_one_submits_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["reproduce", "domain_growth", "--scale", "small", "--out", str(tmp_path / "plan"), "--launcher", "slurm"]
    command += ["--detach", "--runs-per-job", "6", "--at-a-time", "1", "--sbatch", "begin=now+3600"]
    for _ in range(2):
        assert main(command) == 0
        assert "runs to do: 12, in 2 Slurm jobs, 1 at a time" in capsys.readouterr().out
        assert squeue("%T").count("PENDING") == 2  # those of other tests may still be exiting
    assert not (tmp_path / "plan" / "report.html").exists()
    (batch,) = (tmp_path / "plan" / "slurm" / "batches").iterdir()
    for damage in ("[", "[[]]", "7"):
        batch.write_text(damage)
        assert main(command) == 2
        assert capsys.readouterr().err.startswith(f"messi: {batch} is damaged; type: scancel --name=messi-plan-")
    subprocess.run(["scancel", "--me"], check=True)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"partition": "al"}, "There is no partition named 'al'; available: all, urgent. Did you mean 'all'?"),
        ({"time": "1:01:00"}, "time must be at most 60 minutes in the partition all, but is '1:01:00'; use a shorter"),
        ({"time": "soon"}, "time must be a number of minutes, such as 90, or hours:minutes:seconds, such as 12:00:00"),
        ({"sbatch": ("nodelist=nowhere",)}, "Slurm refused the jobs: Batch job submission failed: Invalid node name"),
        ({"sbatch": ("wrong=1",)}, "Slurm refused the jobs: unrecognized option '--wrong=1'."),
        ({"gpus_per_run": 1}, "Slurm refused the jobs: Invalid generic resource (gres) specification."),
        ({"runs_per_job": 0}, "runs_per_job must be at least 1, but is 0."),
    ],
)
def test_what_the_cluster_cannot_do_is_one_sentence(
    options: dict[str, object], sentence: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = set(squeue("%F"))  # jobs of other tests may still be exiting
    with pytest.raises(MessiError) as raised:
        Slurm(**options).launch(Plan(tmp_path, [planned(0)]))  # type: ignore[arg-type]
    assert str(raised.value).startswith(sentence)
    assert "\n" not in str(raised.value)
    assert tuple(capfd.readouterr()) == ("", "")
    assert set(squeue("%F")) <= before


@pytest.mark.skipif(os.geteuid() != 0, reason="Only root can hide a folder from the node.")
def test_a_folder_that_the_node_cannot_see_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    plan = Plan(tmp_path / "mine" / "plan", [planned(seed) for seed in range(3)])
    with slurm_cluster(hidden=tmp_path / "mine"):
        with pytest.raises(MessiError, match=f"cannot see the folder {plan.folder}/slurm; choose"):
            Slurm(at_a_time=1).launch(plan)
        wait_for(lambda: squeue("%F") == [])


def test_missing_programs_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan(tmp_path, [planned(0)])
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(MessiError, match=r"submitit, which is not installed; type: pip install 'messi-dg\[slurm\]'"):
        Slurm().launch(plan)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MessiError, match="the command sbatch, which this machine does not have; run messi on a login"):
        Slurm().launch(plan)
