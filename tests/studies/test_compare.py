"""What a comparison plans, recommends and reports, from runs that were written by hand."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from messi.cli.main import main
from messi.core.errors import MessiError
from messi.data.datasets.rotated_mnist import RotatedMNIST
from messi.data.datasets.two_subsets import TwoSubsets
from messi.reports.plan_page import Text
from messi.reports.table import Table
from messi.studies.common.hold_out import Task, k_groups
from messi.studies.common.plan_file import read_plan, write_plan
from messi.studies.compare import Compare, ComparisonConfig
from messi.sweeps.plan import Label
from tests.studies.made_runs import Made, cell_of, made_results

GROUPS = (("0",), ("15", "30"))
STUDY = Compare(tasks=(Task(data=RotatedMNIST(), hold_out=GROUPS),), methods=("erm", "coral", "messi steps=9"), seeds=2)
LEVEL = {"erm": 0.6, "coral": 0.7, "messi steps=9": 0.65}
"""Accuracy on the first held-out domain; that on 15 is lower by 0.2, that on 30 higher by 0.1."""


def made(labels: Mapping[str, Label]) -> dict[str, Any]:
    """With the second seed, MESSI is worse by 0.12; validation favours it."""
    method, level = str(labels["method"]), LEVEL[str(labels["method"])]
    level -= 0.12 * (labels["method"] == "messi steps=9" and labels["seed"] == 1)
    target = {"0": level} if labels["target"] == "0" else {"15": level - 0.2, "30": level + 0.1}
    source = {"45": 0.9 if method.startswith("messi") else 0.8}
    timing = {"device": "cpu", "resumed_after_step": 0, "steps": 10, "seconds": 1, "seconds_with_evaluations": 2}
    return {
        "result": {"target": target, "source_val": source},
        "timing": {**timing, "inference": None},
        "diagnostics": {"calibration": {"target": {"ece": 0.05}}},
    }


def sections(folder: Path, study: Compare, made: Made = made) -> tuple[str, Table, Table]:
    words, ranking, held_out = study.report(made_results(folder, study, made))
    assert isinstance(words, Text)
    assert isinstance(ranking, Table)
    assert isinstance(held_out, Table)
    return words.markdown, ranking, held_out


def test_runs_share_groups_and_seeds_and_complete_one_seed_first() -> None:
    runs = STUDY.runs()
    assert [run.labels["seed"] for run in runs] == [0] * 6 + [1] * 6
    tasks = {(run.config.target, run.config.seed) for run in runs}
    assert len(tasks) * len(STUDY.methods) == len(runs)
    assert {run.config.training.steps for run in runs if run.labels["method"] == "messi steps=9"} == {9}
    names = [run.name for run in runs]
    assert names[1].startswith("coral_rotated_mnist_0_seed0_")
    fewer = dataclasses.replace(STUDY, methods=("coral",), seeds=1)
    assert {run.name for run in fewer.runs()} < set(names), "a smaller plan reuses the runs of a larger one"


def test_the_ranking_by_hand(tmp_path: Path) -> None:
    words, ranking, held_out = sections(tmp_path, STUDY)
    assert [row.heads[0] for row in ranking.rows] == ["coral", "erm", "messi steps=9"]

    def value(column: str, method: str) -> float:
        found = cell_of(ranking, column, method).ours
        assert found is not None
        return found.mean

    # The second group's mean is level - 0.05; the mean over both groups level - 0.025.
    assert value("Mean %", "coral") == pytest.approx(67.5)
    assert value("Worst %", "coral") == pytest.approx(50)
    assert cell_of(ranking, "Worst %", "coral").note == "(15)"
    assert [value(name, "coral") for name in ("vs erm", "2.5 %", "97.5 %")] == pytest.approx([10, 10, 10])
    assert value("vs erm", "messi steps=9") == pytest.approx(-1)
    assert value("2.5 %", "messi steps=9") < 0 < value("97.5 %", "messi steps=9")
    assert cell_of(ranking, "vs erm", "erm").ours is None
    assert (value("Val. %", "messi steps=9"), value("ECE %", "erm")) == pytest.approx((90, 5))
    assert value("Seconds", "messi steps=9") == pytest.approx(2 * 9 / 10), "10 of the steps were timed"
    shown = cell_of(held_out, "15+30", "erm").ours
    assert shown is not None
    assert shown.mean == pytest.approx(55)
    assert "**coral**. It is better than erm by +10.0 points" in words
    assert "Not distinguishable from erm with these seeds: messi steps=9, \u22121.0 points" in words
    assert "**67.5 %, from 50.0 % to 80.0 %, on 3 held-out domains (2 seeds)**" in words
    assert "It is not a test result" in words


def test_unbalanced_classes_have_their_scores_in_the_ranking_and_in_the_recommendation(tmp_path: Path) -> None:
    """Balanced accuracy is half of the accuracy in this example; the mean over a group's domains is shown."""

    def unbalanced(labels: Mapping[str, Label]) -> dict[str, Any]:
        files = made(labels)
        scores = {
            domain: {"balanced_accuracy": accuracy / 2, "macro_f1": accuracy / 4, "majority_share": 0.5}
            for domain, accuracy in files["result"]["target"].items()
        }
        return {**files, "result": {**files["result"], "class_scores": {"target": scores}}}

    words, ranking, _ = sections(tmp_path, STUDY, unbalanced)
    cells = [cell_of(ranking, name, "coral").ours for name in ("Mean %", "Balanced %", "Macro F1 %", "Majority %")]
    assert [one.mean for one in cells if one] == pytest.approx([67.5, 67.5 / 2, 67.5 / 4, 50])
    assert "Macro F1: the mean F1 over the same classes" in ranking.explanation
    assert "balanced accuracy is 33.8\u00a0% and macro F1 16.9\u00a0%; always predicting" in words
    balanced = sections(tmp_path / "balanced", STUDY)
    assert "unbalanced" not in balanced[0]
    assert "Balanced %" not in [column.name for column in balanced[1].columns]


def test_with_a_target_only_validation_decides(tmp_path: Path) -> None:
    """CORAL is best on the target and MESSI on validation data."""
    study = dataclasses.replace(STUDY, tasks=(Task(data=RotatedMNIST(), hold_out=GROUPS[:1], sealed=True),))
    words, ranking, _ = sections(tmp_path, study)
    assert "**messi steps=9**" in words
    assert "on the validation part of the source domains alone" in words
    assert next(iter(ranking.rows)).heads == ("messi steps=9",)
    difference = cell_of(ranking, "vs erm", "messi steps=9").ours
    assert difference is not None
    on_target = words.partition("On the held-out domains:")[2]
    assert "Better than erm: coral, +10.0 points (95 % interval +10.0 to +10.0)." in on_target
    assert "Not distinguishable from erm with these seeds: messi steps=9, \u22121.0 points" in on_target
    assert difference.mean == pytest.approx(10), "the difference is that of the numbers that decide"


def test_nothing_is_recommended_before_all_runs_are_finished(tmp_path: Path) -> None:
    def partial(labels: Mapping[str, Label]) -> dict[str, Any] | str | None:
        return None if labels["method"] == "coral" and labels["seed"] == 1 else made(labels)

    words, ranking, _ = sections(tmp_path, STUDY, partial)
    assert words == "## Recommendation\n\nNone yet: 2 of 12 runs are not finished."
    assert cell_of(ranking, "Mean %", "coral").state == "incomplete"

    def failing(labels: Mapping[str, Label]) -> dict[str, Any] | str | None:
        return "Too large." if labels["method"] == "coral" else made(labels)

    words, *_ = sections(tmp_path / "failing", STUDY, failing)
    assert words == "## Recommendation\n\nNone yet: 4 of 12 runs are not finished; 4 of them failed."
    with pytest.raises(MessiError, match="has unfinished runs"):
        STUDY.final(made_results(tmp_path / "again", STUDY, partial), tmp_path)


def test_several_data_sets_have_their_own_recommendations(tmp_path: Path) -> None:
    tasks = (
        *STUDY.tasks,
        Task(data=TwoSubsets(), hold_out=(("a0",), ("b0",))),
        Task(data=TwoSubsets(per_domain=60), hold_out=(("a0",),)),
    )
    study = dataclasses.replace(STUDY, tasks=tasks)
    assert list(study.by_data) == ["rotated_mnist", "two_subsets", "two_subsets #2"]
    assert len({run.name for run in study.runs()}) == 3 * 2 * 5
    found = study.report(made_results(tmp_path, study, lambda _: None))
    assert len({section.name for section in found}) == 9
    with pytest.raises(MessiError, match="requires one data set"):
        study.require_one_model()


def test_groups_that_are_too_long_to_name_are_listed(tmp_path: Path) -> None:
    groups = k_groups(2, [f"a domain with a very long name {number}" for number in range(4)])
    study = dataclasses.replace(STUDY, tasks=(Task(data=RotatedMNIST(), hold_out=groups),))

    def same(labels: Mapping[str, Label]) -> dict[str, Any]:
        return {"result": {"target": {str(labels["target"]): 0.5}, "source_val": {"s": 0.5}}}

    words, *_ = sections(tmp_path, study, same)
    assert f"group 1: {', '.join(groups[0])}; group 2: " in words


def test_a_plan_can_be_read_edited_and_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_plan(STUDY, tmp_path)
    assert read_plan(tmp_path) == STUDY
    file = tmp_path / "plan.json"
    values = json.loads(file.read_text())
    values["methods"] = ["erm"]
    file.write_text(json.dumps(values))
    dry = ["compare", "--plan", str(file), "--dry-run"]
    assert main(dry) == 2
    assert 'it was changed; to run it as it is, delete its line "checksum"' in capsys.readouterr().err
    del values["checksum"]
    file.write_text(json.dumps(values))
    assert main(dry) == 0
    printed = capsys.readouterr().out
    assert "4 runs; 1 method, 2 groups of held-out domains, 2 seeds" in printed
    assert "coral" not in printed
    for wrong, sentence in (
        ({**values, "methods": ["ern"]}, "Did you mean 'erm'?"),
        ({"name": "theory"}, "study named"),
    ):
        file.write_text(json.dumps(wrong))
        assert main(dry) == 2
        assert sentence in capsys.readouterr().err


def test_a_plan_file_does_not_decide_which_code_is_executed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = tmp_path / "own.py"
    own.write_text("raise SystemExit('executed')")
    write_plan(dataclasses.replace(STUDY, methods=("erm", f"{own} steps=3")), tmp_path / "plan")
    for command in (["report", str(tmp_path / "plan")], ["compare", "--plan", str(tmp_path / "plan" / "plan.json")]):
        assert main(command) == 2
        assert "which is only run if you name it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "A comparison requires a data set and a method"),
        ({"data": ("two_subsets",), "methods": ("erm", "erm")}, "Every method must differ"),
        ({"data": ("two_subsets",), "methods": ("erm ",), "vary": ("steps=0",)}, "steps must be at least 1"),
        ({"data": ("two_subsets",), "hold_out": ("99",)}, "at most the number of domains"),
    ],
)
def test_wrong_options_are_one_sentence(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(MessiError, match=sentence):
        ComparisonConfig(**options).plan()
