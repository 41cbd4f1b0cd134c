"""``messi predict`` on image files."""

import csv
import io
import json
import shutil
from pathlib import Path

import pytest

from tests.command import messi


def test_predict_gives_class_probability_and_expert_weights_and_survives_a_bad_image(
    trained: Path, tmp_path: Path
) -> None:
    shutil.copytree(trained / "data" / "dark room" / "red", tmp_path / "new")
    (tmp_path / "new" / "3.jpg").write_bytes(b"\xff\xd8 cut")
    done = messi("predict", trained / "run", tmp_path / "new", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert done.returncode == 2
    assert "3.jpg cannot be read" in done.stderr
    assert len(rows) == 11
    for row in rows:
        assert row["class"] == "red"
        assert 0.5 <= float(row["probability"]) <= 1
        assert sum(float(row[f"expert{m}"]) for m in range(1, 7)) == pytest.approx(1, abs=1e-5)


def test_predict_searches_folders_as_training_does_and_classifies_an_image_once(trained: Path, tmp_path: Path) -> None:
    """Hidden files of macOS, hidden folders and folders named like images are not images."""
    shutil.copytree(trained / "data" / "dark room" / "red", tmp_path / "new" / "shots.jpg")
    (tmp_path / "new" / "shots.jpg" / "._0.jpg").write_bytes(b"\0\5\x16\7")
    (tmp_path / "new" / ".trash").mkdir()
    shutil.copy(trained / "data" / "dark room" / "red" / "0.jpg", tmp_path / "new" / ".trash" / "0.jpg")
    twice = tmp_path / "new" / "shots.jpg" / "0.jpg"
    done = messi("predict", trained / "run", tmp_path / "new", twice, twice, "--format", "csv")
    assert (done.returncode, done.stderr) == (0, "")
    images = [Path(row["image"]).name for row in csv.DictReader(io.StringIO(done.stdout))]
    assert sorted(images) == sorted(f"{i}.jpg" for i in range(12))


def test_predict_follows_links_to_folders_as_training_does(trained: Path, tmp_path: Path) -> None:
    """Two names of one folder count twice, as in training; a link that leads back up is skipped."""
    shutil.copytree(trained / "data" / "dark room" / "red", tmp_path / "elsewhere" / "red")
    for link, folder in (("new/one", "elsewhere"), ("new/two", "elsewhere/red"), ("elsewhere/back", "new")):
        (tmp_path / link).parent.mkdir(exist_ok=True)
        (tmp_path / link).symlink_to(tmp_path / folder)
    done = messi("predict", trained / "run", "new", "--format", "csv", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    images = [row["image"] for row in csv.DictReader(io.StringIO(done.stdout))]
    assert sorted(images) == sorted(f"new/{place}/{i}.jpg" for place in ("one/red", "two") for i in range(12))


def test_predict_prints_json_and_takes_a_model_file(trained: Path) -> None:
    image = trained / "data" / "bright" / "blue" / "0.jpg"
    done = messi("predict", trained / "run" / "model.safetensors", image, "--format", "json")
    (answer,) = json.loads(done.stdout)
    assert (done.returncode, answer["class"], answer["image"]) == (0, "blue", str(image))
