"""The table at the end of training."""

from pathlib import Path

import pytest

from messi.cli.common.results import print_held_out, print_results
from messi.core.records import ClassScores
from tests.reports.helpers import Sample

PROTOCOL = {
    "protocol": "messi",
    "deviations": {"steps": 300, "evaluate_every": 50, "batch_per_domain": 16, "split": "x"},
}
PACS = {"art_painting": 0.7, "cartoon": 0.55, "photo": 0.9, "sketch": 0.65}


def test_a_run_with_several_targets_has_a_narrow_table_with_mean_and_worst(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Sample(targets=PACS, result=PROTOCOL, images=False).write(tmp_path / "a")
    print_results([path])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    assert [line.split() for line in lines if "40" in line.split()] == [
        ["messi", "art_painting", "70.0", "40", "85.0", "20", "of", "30"],
        ["messi", "cartoon", "55.0", "40", "85.0", "20", "of", "30"],
        ["messi", "photo", "90.0", "40", "85.0", "20", "of", "30"],
        ["messi", "sketch", "65.0", "40", "85.0", "20", "of", "30"],
    ]
    assert " messi: mean over 4 targets 70.0 %, worst cartoon 55.0 %" in lines
    printed = " selection source_val, target part all, seed 0, protocol messi; steps 300; evaluate_every 50;"
    assert [line for line in lines if line.startswith(printed)]


def test_settings_in_which_runs_differ_are_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [Sample(seed=seed, images=False).write(tmp_path / str(seed)) for seed in (3, 4)]
    print_results(paths)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[-1] for line in lines if "sketch" in line] == ["3", "4"]
    assert [line.split()[-1] for line in lines if "Selected step" in line] == ["Seed"]
    assert [line for line in lines if "selection source_val, target part all, protocol messi" in line]


def test_a_recipe_is_printed_and_a_run_without_one_says_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paper, plain = (
        Sample(images=False, seed=seed, result={"recipe": name}).write(tmp_path / str(seed))
        for seed, name in ((3, "paper"), (4, None))
    )
    print_results([paper])
    assert "seed 3, recipe paper, protocol messi; steps 30" in capsys.readouterr().out
    print_results([plain])
    assert "ecipe" not in capsys.readouterr().out
    print_results([paper, plain])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[-2:] for line in lines if "sketch" in line] == [["3", "paper"], ["30", "4"]]


def test_runs_that_hold_out_one_domain_each_have_a_mean(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    accuracies = {"sketch": 0.6, "cartoon": 0.5}
    paths = [Sample(targets={d: a}, images=False).write(tmp_path / d) for d, a in accuracies.items()]
    print_held_out(paths)
    lines = capsys.readouterr().out.splitlines()
    assert " mean over 2 targets 55.0 %, worst cartoon 50.0 %" in lines


def test_a_run_without_a_target_still_has_a_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    print_results([Sample(targets={}, images=False).write(tmp_path / "a")])
    text = capsys.readouterr().out
    assert [line.split() for line in text.splitlines() if "85.0" in line] == [
        ["messi", "none", "85.0", "20", "of", "30"]
    ]
    assert "mean over" not in text


def test_unbalanced_classes_have_their_scores_next_to_accuracy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run of an earlier version next to it has empty cells, and balanced data has no such columns."""
    scores = ClassScores(balanced_accuracy=0.345, macro_f1=0.311, majority_share=0.8)
    new = Sample(targets=PACS, images=False, class_scores=scores).write(tmp_path / "new")
    old = Sample(targets={"sketch": 0.6}, images=False, seed=3).write(tmp_path / "old")
    print_results([new])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["messi", "photo", "90.0", "34.5", "31.1", "80.0", "40", "85.0", "20", "of", "30"] in lines
    print_held_out([old, new])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["sketch", "60.0", "40", "85.0", "20", "of", "30", "3"] in lines
    assert ["sketch", "65.0", "34.5", "31.1", "80.0", "40", "85.0", "20", "of", "30", "0"] in lines
    print_results([old])
    assert "Balanced" not in capsys.readouterr().out
