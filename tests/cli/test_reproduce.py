"""``messi reproduce`` before anything runs: what it refuses, and what it tells."""

import json
from pathlib import Path

import pytest

from messi.cli.main import main
from messi.cli.reproduce import Lines
from messi.experiments.domain_growth import DomainGrowth
from messi.experiments.domainbed import Domainbed
from messi.sweeps.launchers.local import Local
from messi.sweeps.plan import Plan

GROWTH = ("reproduce", "domain_growth", "--scale", "small")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--jobs", "0"), "jobs must be at least 1, but is 0."),
        (("--jobs", "-1"), "jobs must be at least 1, but is -1."),
        (("--devices", "foo"), "There is no device named 'foo'; there are: cpu"),
        (("--devices", "cpu", "cuda:99"), "There is no device named 'cuda:99'; there are: cpu"),
    ],
)
def test_what_would_not_run_is_refused_in_one_sentence(
    options: tuple[str, ...], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*GROWTH, "--out", str(tmp_path / "plan"), *options]) == 2
    told = capsys.readouterr()
    assert sentence in told.err
    assert (told.out, len(told.err.splitlines())) == ("", 1)
    assert not (tmp_path / "plan").exists()


def test_a_folder_is_for_one_experiment_with_whatever_options(
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
        told = capsys.readouterr().err
        assert f"{tmp_path / 'plan.json'} is damaged: " in told
        assert len(told.splitlines()) == 1


def test_a_plan_of_another_version_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plan.json").write_text('{"name": "domain_growth", "scales": "small"}')
    assert main(["report", str(tmp_path)]) == 2
    assert f"{tmp_path / 'plan.json'} describes a plan that this version does not know: " in capsys.readouterr().err


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main(["reproduce", "theory", "--scale", "small", "--out", str(tmp_path / "file")]) == 2
    assert f"Could not write {tmp_path / 'file'}: " in capsys.readouterr().err


def test_runs_of_a_path_that_was_spelled_otherwise_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = Plan(tmp_path / "plan", Domainbed(data=("pacs",), rows=("ERM",), seeds=1, weights="weights").runs())
    for run in plan.runs:
        plan.path(run).mkdir(parents=True)
    options = ["--data", "pacs", "--rows", "ERM", "--seeds", "1", "--out", str(plan.folder)]
    told = []
    for weights in ("weights", str(tmp_path / "weights")):
        main(["reproduce", "domainbed", *options, "--weights", weights, "--dry-run"])
        told.append(capsys.readouterr().out)
    assert "left out" not in told[0]
    assert told[1].startswith(f"left out  {min(run.name for run in plan.runs)} and 3 more in ")
    assert main(["reproduce", "domainbed", *options, "--weights", str(tmp_path / "weights")]) == 2
    assert capsys.readouterr().out.startswith("left out  ")  # before the weights are missed


def test_what_begins_is_told_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Lines(Plan(tmp_path, DomainGrowth(scale="small").runs()), Local(jobs=20, devices=("cpu", "cpu")))
    assert capsys.readouterr().out == "runs to do: 12, 12 at a time on cpu, cpu; each is reported when it finishes\n"
