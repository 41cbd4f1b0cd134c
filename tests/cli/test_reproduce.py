"""``messi reproduce`` before anything runs: errors, notes and the choice of a launcher."""

import json
from pathlib import Path

import pytest

from messi.cli.common.plan_progress import plan_progress
from messi.cli.main import main
from messi.experiments.domain_growth import DomainGrowth
from messi.experiments.domainbed import DomainBed
from messi.sweeps.launchers.local import Local
from messi.sweeps.plan import Plan

GROWTH = ("reproduce", "domain_growth", "--scale", "small")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--jobs", "0"), "jobs must be at least 1, but is 0."),
        (("--jobs", "-1"), "jobs must be at least 1, but is -1."),
        (("--devices", "foo"), "There is no device named 'foo'; available: cpu"),
        (("--devices", "cpu", "cuda:99"), "There is no device named 'cuda:99'; available: cpu"),
    ],
)
def test_impossible_options_are_refused_in_one_sentence(
    options: tuple[str, ...], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*GROWTH, "--out", str(tmp_path / "plan"), *options]) == 2
    printed = capsys.readouterr()
    assert sentence in printed.err
    assert (printed.out, len(printed.err.splitlines())) == ("", 1)
    assert not (tmp_path / "plan").exists()


def test_a_folder_belongs_to_one_experiment_with_any_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(DomainGrowth(scale="small").to_dict()))
    before = file.read_bytes()
    assert main(["reproduce", "theory", "--out", str(tmp_path)]) == 2
    assert f"{tmp_path} contains the plan of 'domain_growth', not of 'theory'" in capsys.readouterr().err
    assert [place.name for place in tmp_path.iterdir()] == ["plan.json"]
    assert file.read_bytes() == before
    assert main(["reproduce", "domain_growth", "--seeds", "5", "--out", str(tmp_path), "--dry-run"]) == 0


@pytest.mark.parametrize("content", ["{", "[]", '{"scale": "small"}'])
def test_a_damaged_plan_file_is_one_sentence(content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plan.json").write_text(content)
    for command in (["report", str(tmp_path)], [*GROWTH, "--out", str(tmp_path), "--dry-run"]):
        assert main(command) == 2
        printed = capsys.readouterr().err
        assert f"{tmp_path / 'plan.json'} is damaged: " in printed
        assert len(printed.splitlines()) == 1


def test_a_plan_of_another_version_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plan.json").write_text('{"name": "domain_growth", "scales": "small"}')
    assert main(["report", str(tmp_path)]) == 2
    assert f"{tmp_path / 'plan.json'} describes a plan that this version does not know: " in capsys.readouterr().err


def test_a_folder_that_cannot_be_created_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main(["reproduce", "theory", "--scale", "small", "--out", str(tmp_path / "file")]) == 2
    assert f"Could not write {tmp_path / 'file'}: " in capsys.readouterr().err


def test_runs_of_a_differently_written_path_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = Plan(tmp_path / "plan", DomainBed(data=("pacs",), rows=("ERM",), seeds=1, weights="weights").runs())
    for run in plan.runs:
        plan.path(run).mkdir(parents=True)
    options = ["--data", "pacs", "--rows", "ERM", "--seeds", "1", "--out", str(plan.folder)]
    printed = []
    for weights in ("weights", str(tmp_path / "weights")):
        main(["reproduce", "domainbed", *options, "--weights", weights, "--dry-run"])
        printed.append(capsys.readouterr().out)
    assert "left out" not in printed[0]
    assert printed[1].startswith(f"left out  {min(run.name for run in plan.runs)} and 3 more in ")
    assert main(["reproduce", "domainbed", *options, "--weights", str(tmp_path / "weights")]) == 2
    assert capsys.readouterr().out.startswith("left out  ")  # before the missing weights are reported


def test_the_number_of_runs_is_printed_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with plan_progress(Plan(tmp_path, DomainGrowth(scale="small").runs()), Local(jobs=20, devices=("cpu", "cpu"))):
        pass
    assert capsys.readouterr().out == "runs to do: 12, 12 at a time on cpu, cpu; each is reported when it finishes\n"


LAUNCHER = """
from dataclasses import dataclass
from pathlib import Path
from messi.sweeps.launchers.common.base import Launcher

@dataclass(frozen=True, kw_only=True)
class Queue(Launcher):
    priority: int = 0
    \"\"\"Place in the queue.\"\"\"

    def launch(self, plan, on_end):
        Path("queue.txt").write_text("".join(f"{self.priority} {run.name}\\n" for run in plan.unfinished()))
        for run in plan.unfinished():
            on_end(plan.record_end(run, "The queue is full."))
"""


def test_a_launcher_is_one_file_with_its_own_options(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("messi.studies.common.execute.check_data_and_weights", lambda *_: None)
    Path("queue.py").write_text(LAUNCHER)
    assert main([*GROWTH, "--launcher", "queue.py", "--priority", "3"]) == 1
    runs = DomainGrowth(scale="small").runs()
    assert Path("queue.txt").read_text().splitlines() == [f"3 {run.name}" for run in runs]
    printed = capsys.readouterr().out
    assert printed.startswith("runs to do: 12, with queue; each is reported when it finishes\n[1/12, ")
    failed = [line for line in printed.splitlines() if line.startswith("failed  ")]
    assert failed == [f"failed  {run.name}: The queue is full." for run in runs]
    assert main([*GROWTH, "--launcher", "nowhere"]) == 2
    assert "There is no launcher named 'nowhere'; available: local, ray, slurm." in capsys.readouterr().err
