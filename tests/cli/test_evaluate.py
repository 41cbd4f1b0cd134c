"""``messi evaluate`` on the data of a run and on other data."""

import csv
import io
import json
import shutil
from pathlib import Path

import pytest

from tests.command import messi


def test_evaluate_repeats_what_the_run_measured(trained: Path) -> None:
    done = messi("evaluate", "run", "--format", "json", cwd=trained)
    measured = {row["domain"]: row["accuracy"] for row in json.loads(done.stdout)}
    result = json.loads((trained / "run" / "result.json").read_text())
    assert measured == {**result["source_val"], **result["target"]}


def test_evaluate_on_other_data_matches_classes_by_name(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained / "data" / "dim" / "red", tmp_path / "other" / "new place" / "red")
    done = messi("evaluate", trained / "run", "--data", tmp_path / "other", "--format", "json")
    rows = json.loads(done.stdout)
    found = [(row["role"], row["domain"], row["n"], row["accuracy"]) for row in rows]
    assert found == [("train", "new place", 10, 1.0), ("source_val", "new place", 2, 1.0)], "it was trained on"
    assert "The run has seen 12 of these 12 examples: 10 as train, 2 as source_val." in done.stderr
    (tmp_path / "other" / "new place" / "red").rename(tmp_path / "other" / "new place" / "rde")
    done = messi("evaluate", trained / "run", "--data", tmp_path / "other")
    assert done.returncode == 2
    assert "Did you mean 'red'?" in done.stderr


def test_evaluate_takes_the_options_of_other_data(trained: Path, tmp_path: Path) -> None:
    """The columns of a table, and what to do with damaged images; the accuracy is that of the predictions."""
    shutil.copytree(trained / "data" / "dim", tmp_path / "dim")
    (tmp_path / "dim" / "red" / "12.jpg").write_bytes(b"")
    answered = messi("predict", trained / "run", tmp_path / "dim", "--format", "csv")
    said = {Path(row["image"]): row["class"] for row in csv.DictReader(io.StringIO(answered.stdout))}
    files = sorted((tmp_path / "dim").rglob("*.jpg"))
    label = {file: "red" if i % 3 else "blue" for i, file in enumerate(files)}
    lines = [f"{file},{label[file]},here" for file in files]
    (tmp_path / "table.csv").write_text("\n".join(["file,colour,place", *lines]))
    columns = ("--path-column", "file", "--label-column", "colour", "--domain-column", "place")
    options = ("--data", tmp_path / "table.csv", *columns, "--damaged", "leave_out")
    done = messi("evaluate", trained / "run", *options, "--format", "json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    right = sum(said[file] == label[file] for file in said)
    assert [(row["role"], row["domain"], row["n"]) for row in rows] == [
        ("train", "here", 20),
        ("source_val", "here", 4),
    ]
    assert sum(row["accuracy"] * row["n"] for row in rows) == pytest.approx(right)
    assert 0 < right < len(said) == 24


def test_evaluate_gives_the_same_numbers_when_its_advice_for_renamed_data_is_followed(
    trained: Path, tmp_path: Path
) -> None:
    """Without --data, a relative path is looked up in the working folder."""
    asked = messi("evaluate", trained / "run", "--format", "csv", cwd=tmp_path)
    assert asked.returncode == 2
    assert (
        "was trained on data, which does not exist; if the data was moved or renamed, name its new path" in asked.stderr
    )
    shutil.copytree(trained / "data", tmp_path / "renamed")
    done = messi("evaluate", trained / "run", "--data", "renamed", "--format", "csv", cwd=tmp_path)
    before = messi("evaluate", "run", "--format", "csv", cwd=trained)
    assert (done.returncode, done.stdout, done.stderr) == (0, before.stdout, before.stderr)
    assert ",dark room," in done.stdout
