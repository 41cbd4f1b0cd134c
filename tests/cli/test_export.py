"""``messi export``: the files of a run, and one sentence for what cannot be exported."""

import json
from pathlib import Path

import onnxruntime
import pytest

from messi.core.tensorfile import read_tensors, write_tensors
from messi.evaluation.model import load
from tests.command import messi


def test_export_writes_a_file_and_a_card_named_after_the_run(trained: Path) -> None:
    done = messi("export", trained / "run")
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [["model", "run.onnx"], ["card", "run.md"]]
    session = onnxruntime.InferenceSession("run.onnx")
    assert json.loads(session.get_modelmeta().custom_metadata_map["held_out_domains"]) == ["dark room"]
    image = load(trained / "run").read(trained / "data" / "dark room" / "red" / "0.jpg")
    answers = load(trained / "run").predict([image])
    (probabilities, _) = session.run(None, {"images": image[None].numpy()})
    assert abs(probabilities - answers.probabilities.numpy()).max() < 1e-5
    assert "| `dark room` |" in Path("run.md").read_text()


@pytest.mark.parametrize("taken", ["one.onnx", "one.md"])
def test_nothing_is_overwritten(trained: Path, taken: str) -> None:
    Path(taken).write_text("mine")
    done = messi("export", trained / "run", "--out", "one.onnx")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"messi: {taken} exists already; remove it, or name another file with --out.\n"
    assert Path(taken).read_text() == "mine"


def test_a_place_that_cannot_be_written_is_one_sentence(trained: Path, tmp_path: Path) -> None:
    done = messi("export", trained / "run", "--out", "nowhere/one.onnx")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "There is no folder nowhere" in done.stderr
    done = messi("export", trained / "run", "--to", "torch", "--out", "/proc/one.pt2")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "Could not write /proc/one.pt2" in done.stderr


def test_a_model_of_a_newer_version_is_one_sentence(trained: Path, tmp_path: Path) -> None:
    tensors, description = read_tensors(trained / "run" / "model.safetensors")
    write_tensors(tmp_path / "new.safetensors", tensors, {**description, "version": "9.0", "mood": "good"})
    done = messi("export", tmp_path / "new.safetensors")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "was written by messi 9.0 and does not fit" in done.stderr
    assert [path.name for path in tmp_path.glob("*.onnx")] == []
