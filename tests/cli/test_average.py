"""``messi average``: what it prints, and what other commands do with its folder."""

from pathlib import Path

import pytest

from messi.core.rundir import RunDir
from messi.reports.page import write_report
from tests.command import messi

OPTIONS = "--data two_subsets --per-domain 40 --target b2 --algorithm erm --evaluate-every 4 --device cpu"


def train(name: str, *more: str, steps: int = 8) -> None:
    done = messi("train", *OPTIONS.split(), "--steps", str(steps), *more, "--out", f"runs/{name}")
    assert done.returncode == 0, done.stderr


@pytest.fixture
def averaged() -> Path:
    """Make two runs from one start, and their average."""
    train("start", steps=4)
    for name, seed, rate in (("a", "1", "1e-3"), ("b", "2", "5e-3")):
        train(name, "--start", "start", "--split-seed", "0", "--seed", seed, "--learning-rate", rate)
    done = messi("average", "runs/a", "runs/b", "--choice", "greedy", "--out", "runs/both", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    (head,) = [row for row in rows if row[:1] == ["Run"]]
    assert " ".join(head) == ("Run learning_rate seed Validation % Target b2 % Average with it % In the average")
    kept = sum(one.kept for one in RunDir(Path("runs/both")).read_result().averaged_runs)
    assert [row[:3] for row in rows if row[:1] in (["a"], ["b"])] == [["a", "0.001", "1"], ["b", "0.005", "2"]]
    assert [row[-3:] for row in rows if row[:2] == ["greedy", "average"]] == [[str(kept), "of", "2"]]
    assert "model   runs/both/model.safetensors\nreport  runs/both/report.html\n" in done.stdout
    return Path("runs/both")


def test_the_folder_works_with_every_command(averaged: Path) -> None:
    page = (averaged / "report.html").read_text()
    assert "Averaged runs" in page
    assert "a run is kept unless" in page
    assert "the average of" in page
    assert "messi average runs/a runs/b --choice greedy --out runs/both-again" in page
    for command in (
        ("evaluate", averaged, "--device", "cpu"),
        ("report", averaged, "runs/a", "--out", "page.html"),
        ("verify", averaged),
    ):
        done = messi(*command)
        assert done.returncode == 0, done.stderr
    assert "erm, average greedy of 2 runs" in Path("page.html").read_text()
    again = messi("average", "runs/a", "runs/b", "--choice", "greedy", "--out", averaged, "--device", "cpu")
    assert again.stdout.startswith("This average is already finished; nothing was done: runs/both\n")
    refused = messi("train", "--config", averaged)
    assert refused.returncode == 2
    assert refused.stderr == (
        "messi: runs/both is the average of 2 runs, which cannot be trained; name one of them with --config, or repeat "
        "'messi average'.\n"
    )
    moved = averaged.rename("moved")
    write_report([moved], Path("moved.html"))
    assert messi("evaluate", "moved", "--device", "cpu").returncode == 0


def test_different_starts_are_refused_in_one_sentence() -> None:
    for seed in ("1", "2"):
        train(seed, "--split-seed", "0", "--seed", seed, steps=4)
    done = messi("average", "runs/1", "runs/2")
    assert done.returncode == 2
    assert done.stderr == (
        "messi: runs/2 cannot be averaged with runs/1: they began with different weights, and the mean of such "
        "networks is useless; train both with the same --start, or with the same --seed.\n"
    )
