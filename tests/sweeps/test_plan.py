"""The state of the runs of a plan, read from their files."""

from dataclasses import replace
from pathlib import Path

import pytest

from messi.core.rundir import RunDir
from messi.engine.config import RunConfig
from messi.engine.run import run
from messi.sweeps.plan import Plan, PlannedRun


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
