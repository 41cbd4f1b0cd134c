"""The state of the runs of a plan, read from their files."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from messi.core.documents import write_document
from messi.core.rundir import RunDir
from messi.engine.config import RunConfig
from messi.engine.run import run
from messi.sweeps.one_run import do_run
from messi.sweeps.plan import Plan, PlannedAverage, PlannedRun


def test_a_damaged_file_fails_only_its_run_and_following_the_advice_restores_the_result(
    quick_config: RunConfig, tmp_path: Path
) -> None:
    plan = Plan(tmp_path, [PlannedRun({"seed": seed}, replace(quick_config, seed=seed)) for seed in range(2)])
    for planned in plan.runs:
        run(planned.config, out=plan.path(planned), device="cpu")
    first = RunDir(plan.path(plan.runs[0]))
    for file, deleted in ((first.result, first.result), (first.description, first.path)):
        whole = file.read_bytes()
        for damaged in (whole[:-20], b"[]"):
            file.write_bytes(damaged)
            outcome, other = plan.outcomes()
            assert (outcome.state, other.state) == ("failed", "done")
            assert outcome.reason.startswith(f"{file} is damaged: ")
            assert outcome.reason.endswith(f" or delete {deleted} and repeat the command that created it.")
        file.write_bytes(whole)
    whole = first.result.read_bytes()
    first.result.unlink()
    assert plan.outcomes()[0].state == "started"
    assert run(plan.runs[0].config, out=first.path, device="cpu").fresh
    assert first.result.read_bytes() == whole


@pytest.mark.parametrize(
    ("others", "printed"), [((), ""), (("a",), "left out  a in "), (("b", "a", "c"), "left out  a and 2 more in ")]
)
def test_unplanned_folders_are_named_in_one_line(
    others: tuple[str, ...], printed: str, quick_config: RunConfig, tmp_path: Path
) -> None:
    plan = Plan(tmp_path, [PlannedRun({"seed": 0}, quick_config)])
    assert plan.unplanned_note() == ""
    for name in (plan.runs[0].name, *others):
        (tmp_path / "runs" / name).mkdir(parents=True)
    (tmp_path / "runs" / "a_file").touch()
    words = plan.unplanned_note()
    assert words.startswith(printed + (str(tmp_path / "runs") if printed else ""))
    assert bool(words) == bool(others)
    assert "\n" not in words


def test_a_plan_with_a_start_and_averages_is_executed_in_stages_and_resumed(
    quick_config: RunConfig, tmp_path: Path
) -> None:
    base = replace(quick_config, split_seed=0, training=replace(quick_config.training, steps=4))
    start = PlannedRun({"method": "start"}, base)
    members = [PlannedRun({"method": "run", "seed": n}, replace(base, seed=n, start=start.name)) for n in (1, 2)]
    average = PlannedAverage({"method": "average"}, members, "uniform")
    plan = Plan(tmp_path / "plan", [average, *members, start])  # the order of the plan does not matter
    assert [stage.runs for stage in plan.stages()] == [[start], members, [average]]
    assert "member" not in average.name
    reason = do_run(average.to_dict(), plan.path(average), "cpu")
    assert reason is not None
    assert reason.startswith(f"There is no folder {plan.path(members[0])}")
    reason = do_run(members[0].to_dict(), plan.path(members[0]), "cpu")
    assert reason == f"There is no file {start.name}; give the folder of a run or a model file."
    for stage in plan.stages():
        for planned in stage.runs:
            assert do_run(planned.to_dict(), plan.path(planned), "cpu") is None
    assert [outcome.state for outcome in plan.outcomes()] == ["done"] * 4
    assert plan.unplanned() == []
    moved = Plan((tmp_path / "plan").rename(tmp_path / "moved"), plan.runs)
    assert [outcome.state for outcome in moved.outcomes()] == ["done"] * 4
    assert moved.outcomes()[0].result().averaged_runs[1].target == moved.outcomes()[2].result().target

    description = RunDir(moved.path(members[1])).description  # as if the run had been repeated on another machine
    description.write_text(description.read_text().replace('"cpu_threads": "', '"cpu_threads": "1'))
    write_document(description, {k: v for k, v in json.loads(description.read_text()).items() if k != "checksum"})
    assert moved.outcomes()[0].state != "done"
