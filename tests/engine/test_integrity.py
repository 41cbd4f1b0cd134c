"""A damaged file, or a file of another run, is refused; nothing is computed from it."""

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from messi.cli.main import main
from messi.core.checksum import CHECKSUM_KEY
from messi.core.documents import write_document
from messi.core.errors import MessiError
from messi.core.rundir import RunDir
from messi.core.tensorfile import read_tensors, write_tensors
from messi.engine.config import RunConfig
from messi.engine.interrupt import Interrupted
from messi.engine.observers import Stopwatch
from messi.engine.run import run
from messi.engine.verify import verify_run
from messi.evaluation.model import load


class StopsAfter(Stopwatch):
    """Requests a stop after some steps, as Ctrl-C does."""

    def __init__(self, step: int) -> None:
        super().__init__(torch.device("cpu"))
        self._step = step

    def stepped(self, step: int) -> None:
        if step == self._step:
            raise Interrupted("Stopped.", 2)


@pytest.fixture
def done(quick_config: RunConfig, tmp_path: Path) -> RunDir:
    return RunDir(run(quick_config, out=tmp_path / "done", device="cpu").path)


@pytest.fixture
def half(quick_config: RunConfig, tmp_path: Path) -> RunDir:
    """A run that was stopped after its first checkpoint."""
    with pytest.raises(Interrupted):
        run(quick_config, out=tmp_path / "half", device="cpu", observers=[StopsAfter(7)])
    return RunDir(tmp_path / "half")


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def test_one_flipped_bit_in_a_weight_is_refused(done: RunDir, capsys: pytest.CaptureFixture[str]) -> None:
    flip(done.model, -40)
    for path in (done.path, done.model):
        with pytest.raises(MessiError, match=r"model\.safetensors is damaged.*checksum does not match"):
            load(path)
    assert main(["predict", str(done.path), "x.npz"]) == 2
    assert main(["verify", str(done.path)]) == 1
    assert "model.safetensors is damaged" in capsys.readouterr().out


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8, 0.99])
def test_training_does_not_resume_from_a_damaged_checkpoint(
    half: RunDir, quick_config: RunConfig, share: float
) -> None:
    size = half.last.stat().st_size
    flip(half.last, round(share * size))
    with pytest.raises(MessiError, match=r"last\.safetensors is damaged.* is removed starts from the beginning"):
        run(quick_config, out=half.path, device="cpu")
    assert any("last.safetensors is damaged" in problem for problem in verify_run(half.path).problems)
    half.last.unlink()
    half.model.unlink()
    assert run(quick_config, out=half.path, device="cpu").fresh


@pytest.mark.parametrize("missing", [1, 30, 10**9])
def test_the_records_up_to_a_checkpoint_must_be_complete(half: RunDir, quick_config: RunConfig, missing: int) -> None:
    """Truncating a file to its expected size would fill a shorter one up with zeros."""
    content, counted = half.records.read_bytes(), read_tensors(half.last)[1]["records_size"]
    half.records.write_bytes(content[: max(0, counted - missing)])
    with pytest.raises(MessiError, match=r"records\.jsonl is damaged: its checksum does not match"):
        run(quick_config, out=half.path, device="cpu")
    half.records.write_bytes(content.replace(b'"step": 2', b'"step": 3', 1))
    with pytest.raises(MessiError, match=r"records\.jsonl is damaged"):
        run(quick_config, out=half.path, device="cpu")
    half.records.write_bytes(content + b"what a killed process wrote after it")
    assert run(quick_config, out=half.path, device="cpu").fresh


def test_a_changed_digit_in_the_records_of_a_finished_run_is_refused(done: RunDir) -> None:
    content = done.records.read_bytes()
    done.records.write_bytes(content.replace(b'"accuracy": 0.', b'"accuracy": 1.', 1))
    with pytest.raises(MessiError, match=r"records\.jsonl is damaged or belongs to another run"):
        done.read_records()
    done.records.write_bytes(b"\n".join(content.split(b"\n")[:-2]) + b"\n")
    with pytest.raises(MessiError, match=r"records\.jsonl is damaged or belongs to another run"):
        done.read_records()


def damaged_files(folder: RunDir) -> list[Path]:
    pictures = sorted(folder.examples.glob("*"))
    return [folder.description, folder.result, folder.diagnostics, folder.timing, folder.records, *pictures[:1]]


def test_every_file_of_a_finished_run_is_verified(done: RunDir, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(done.path)]) == 0
    assert capsys.readouterr().out.startswith(f"intact   {done.path}: ")
    for file in [*damaged_files(done), done.model, done.last, done.seen]:
        content = file.read_bytes()
        place = content.rindex(b"0") if file.suffix == ".json" else len(content) - 40
        flip(file, place)
        assert main(["verify", str(done.path)]) == 1, file.name
        output = capsys.readouterr().out
        assert output.startswith("damaged  ")
        assert file.name in output
        file.write_bytes(content)
    assert verify_run(done.path).problems == []


@pytest.mark.parametrize("name", ["model", "last", "records", "result", "diagnostics", "timing", "description", "seen"])
def test_a_file_of_another_run_is_refused(name: str, done: RunDir, quick_config: RunConfig, tmp_path: Path) -> None:
    """The same network on the same data with another seed: only the contents differ."""
    other = RunDir(run(dataclasses.replace(quick_config, seed=1), out=tmp_path / "other", device="cpu").path)
    file: Path = getattr(done, name)
    shutil.copy(getattr(other, name), file)
    assert verify_run(done.path).problems, name
    reading: dict[str, Callable[[], object]] = {
        "model": lambda: load(done.path),
        "last": lambda: run(quick_config, out=done.path, device="cpu"),
        "records": done.read_records,
        "result": done.read_records,
        "diagnostics": done.read_diagnostics,
        "timing": done.read_timing,
        "description": done.read_description,
    }
    if name == "last":
        done.result.unlink()
    if name in reading:
        with pytest.raises(MessiError, match=r"another|not the one|does not fit"):
            reading[name]()


def test_the_model_of_another_step_is_not_taken_for_the_selected_one(done: RunDir, quick_config: RunConfig) -> None:
    weights, description = read_tensors(done.model)
    write_tensors(done.model, weights, {**description, "step": 99})
    done.result.unlink()  # the run is finished again from its last checkpoint
    with pytest.raises(MessiError, match=r"has the weights of step 99, but step (5|10|12) was selected"):
        run(quick_config, out=done.path, device="cpu")


def test_a_run_of_version_0_1_is_read_with_a_note(done: RunDir, caplog: pytest.LogCaptureFixture) -> None:
    """It has no checksums, nor the fields that were introduced with them."""
    expected = (done.read_result().target, done.read_records())
    for file, gone in {
        done.description: ("seen",),
        done.result: ("files",),
        done.diagnostics: (),
        done.timing: ("run",),
    }.items():
        values = json.loads(file.read_text())
        values = {key: value for key, value in values.items() if key not in (CHECKSUM_KEY, *gone)}
        file.write_text(json.dumps(values | ({"version": "0.1.0"} if "version" in values else {})))
    assert (done.read_result().target, done.read_records()) == expected
    assert done.read_diagnostics()["classes"]
    assert done.read_timing().run is None
    assert "was written by messi 0.1, whose files have no checksums" in caplog.text
    values = json.loads(done.description.read_text())
    done.description.write_text(json.dumps(values | {"version": "0.2.0"}))
    with pytest.raises(MessiError, match=r"(run|result)\.json is damaged: it has no checksum"):
        done.read_description()


def test_a_result_names_no_file_outside_of_its_run(done: RunDir, tmp_path: Path) -> None:
    (tmp_path / "secret.png").write_bytes(b"x")
    for path in (done.path / ".." / "secret.png", Path("/etc/passwd")):
        with pytest.raises(MessiError, match="is outside the run"):
            done.require_whole(path)


def test_a_path_that_is_not_a_run_is_not_verified(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(tmp_path)]) == 2
    assert "contains no runs; name a run folder" in capsys.readouterr().err
    assert main(["verify", str(tmp_path / "nowhere")]) == 1
    assert "There is no file" in capsys.readouterr().out


def test_a_typed_document_with_a_matching_checksum_is_still_refused_for_wrong_values(done: RunDir) -> None:
    values = json.loads(done.result.read_text())
    del values[CHECKSUM_KEY]
    write_document(done.result, values | {"selected_step": "two"})
    with pytest.raises(MessiError, match=r"result\.json cannot be read by this version: selected_step must be"):
        done.read_result()
