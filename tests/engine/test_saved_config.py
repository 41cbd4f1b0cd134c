"""``messi train --config``: an earlier run, repeated or changed."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from messi.cli.main import main
from messi.cli.train import parse
from messi.core.checksum import values_checksum
from messi.core.rundir import RunDir
from messi.core.tensorfile import read_tensors

FEATURES = "--data two_subsets --per-domain 40 --steps 4 --evaluate-every 2 --batch-per-domain 8 --device cpu"
OWN_METHOD = """
from messi.algorithms.erm import ERM

print("mine.py is imported")


class Mine(ERM):
    class Config(ERM.Config):
        pass
"""


def train(*options: str) -> None:
    assert main(["train", *options, "--device", "cpu"]) == 0


@pytest.fixture
def done(tmp_path: Path) -> Path:
    """Return the folder of a finished run with unusual settings."""
    unusual = (
        "--target b2 --algorithm messi --protocol swad --ssi-weight 0.5 --seed 3 --flatness sam --split stratified"
    )
    train(*FEATURES.split(), *unusual.split(), "--out", str(tmp_path / "run"))
    return tmp_path / "run"


@pytest.mark.parametrize("file", ["run.json", "."])
def test_a_repeated_run_has_the_same_bits_and_the_same_fingerprint(done: Path, file: str) -> None:
    again = done.with_name("again")
    train("--config", str(done / file), "--out", str(again))
    for name in ("records.jsonl", "model.safetensors", "last.safetensors", "diagnostics.json"):
        assert (again / name).read_bytes() == (done / name).read_bytes(), name
    configs = [parse(["--config", str(folder)]).config for folder in (done, again)]
    assert configs[0] == configs[1]
    assert configs[0].fingerprint() == configs[1].fingerprint()
    assert configs[0].to_dict() == RunDir(done).read_description().config


def test_other_options_override_the_saved_values(done: Path) -> None:
    again = done.with_name("again")
    train("--config", str(done), "--out", str(again), "--seed", "1", "--steps", "3")
    saved, changed = (RunDir(folder).read_description().config for folder in (done, again))
    assert (changed["seed"], changed["training"]["steps"]) == (1, 3)
    assert changed == {**saved, "seed": 1, "training": {**saved["training"], "steps": 3}}
    first, second = (read_tensors(RunDir(folder).last)[0] for folder in (done, again))
    assert any(not first[name].equal(second[name]) for name in first)


def test_another_method_comes_with_its_own_defaults_and_the_same_one_keeps_its_settings(done: Path) -> None:
    same = parse(["--config", str(done), "--algorithm", "messi", "--num-experts", "2"]).config.algorithm.to_dict()
    assert (same["ssi_weight"], same["num_experts"]) == (0.5, 2)
    other = parse(["--config", str(done), "--algorithm", "coral"]).config
    assert (other.algorithm.name, other.seed, other.protocol) == ("coral", 3, "swad")


def test_data_that_was_moved_keeps_its_options(make_folder: Callable[..., Path], tmp_path: Path) -> None:
    images = make_folder()
    small = "--backbone tiny_cnn --steps 1 --batch-per-domain 2 --target paint --damaged leave_out"
    train("--data", str(images), *small.split(), "--out", str(tmp_path / "run"))
    images.rename(tmp_path / "elsewhere")
    moved = parse(["--config", str(tmp_path / "run"), "--data", str(tmp_path / "elsewhere")]).config
    assert moved.data.to_dict() == {"name": "folder", "path": str(tmp_path / "elsewhere"), "damaged": "leave_out"}
    other = parse(["--config", str(tmp_path / "run"), "--data", "two_subsets", "--per-domain", "12"]).config
    assert other.data.to_dict() == {"name": "two_subsets", "per_domain": 12, "data_seed": 0}


def test_a_run_without_a_target_is_repeated_without_one(tmp_path: Path) -> None:
    train(*FEATURES.split(), "--target", "none", "--out", str(tmp_path / "run"))
    train("--config", str(tmp_path / "run"), "--out", str(tmp_path / "again"))
    assert RunDir(tmp_path / "again").read_description().target == ()
    train("--config", str(tmp_path / "run"), "--target", "a1", "--out", str(tmp_path / "held"))
    assert RunDir(tmp_path / "held").read_description().target == ("a1",)


def test_a_method_in_the_users_own_file_is_run_only_if_it_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(OWN_METHOD)
    train(*FEATURES.split(), "--target", "a1", "--algorithm", str(mine), "--out", str(tmp_path / "run"))
    (tmp_path / "other").mkdir()
    moved = shutil.copy(mine, tmp_path / "other")
    capsys.readouterr()
    assert main(["train", "--config", str(tmp_path / "run"), "--device", "cpu"]) == 2
    out, error = capsys.readouterr()
    assert "mine.py is imported" not in out
    assert "only run if you name it" in " ".join(error.split())
    train("--config", str(tmp_path / "run"), "--algorithm", str(moved), "--out", str(tmp_path / "again"))
    assert "mine.py is imported" in capsys.readouterr().out
    first, second = (read_tensors(RunDir(tmp_path / name).model)[0] for name in ("run", "again"))
    assert all(first[name].equal(second[name]) for name in first)
    assert parse(["--config", str(tmp_path / "run"), "--algorithm", "erm"]).config.algorithm.name == "erm"


def forge(folder: Path, change: Callable[[dict[str, dict[str, object]]], object]) -> None:
    """Change the config in a run.json and update its checksum."""
    values = json.loads((folder / "run.json").read_text())
    change(values["config"])
    del values["checksum"]
    (folder / "run.json").write_text(json.dumps({**values, "checksum": values_checksum(values)}))


def test_a_bad_file_gives_one_sentence_and_exit_code_2(done: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (done / "result.json").unlink()  # it has the checksum of run.json, too
    described = (done / "run.json").read_text()
    (done.parent / "empty").mkdir()
    (done.parent / "text.txt").write_text("{}")
    changes: dict[str, Callable[[dict[str, dict[str, object]]], object]] = {
        "no setting of TrainingConfig named 'stepz'": lambda config: config["training"].update(stepz=1),
        "steps must be at least 1, but is 0": lambda config: config["training"].update(steps=0),
        "no data set named 'nowhere'": lambda config: config["data"].update(name="nowhere"),
        "Each value of sources must be text, but is 1": lambda config: config.update(sources=[1]),  # type: ignore[call-overload]
        "config.data is missing": lambda config: config.pop("data"),
    }
    sentences = {}
    for sentence, change in changes.items():
        (done / "run.json").write_text(described)
        forge(done, change)
        sentences[sentence] = (main(["train", "--config", str(done)]), capsys.readouterr().err)
    (done / "run.json").write_text(described.replace('"seed": 3', '"seed": 4'))
    for sentence, path in {
        "run.json is damaged: its checksum": done / "run.json",
        "run.json is missing": done.parent / "empty",
        "There is no folder": done.parent / "nothing",
        "name the folder of a run": done.parent / "text.txt",
    }.items():
        sentences[sentence] = (main(["train", "--config", str(path)]), capsys.readouterr().err)
    for sentence, (code, error) in sentences.items():
        assert code == 2, sentence
        assert sentence in " ".join(error.split()), error
        assert "Traceback" not in error


def test_the_protocol_of_a_saved_run_cannot_be_changed(done: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = parse(["--config", str(done)]).config
    assert saved.protocol != "domainbed"
    assert parse(["--config", str(done), "--protocol", saved.protocol]).config == saved
    assert main(["train", "--config", str(done), "--protocol", "domainbed"]) == 2
    assert "--protocol cannot be changed to 'domainbed' with --config" in " ".join(capsys.readouterr().err.split())
