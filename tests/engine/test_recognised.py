"""Examples that a run has seen are never evaluated as a target, however a copy of its data was changed."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from messi.algorithms.erm import ERM
from messi.core.errors import MessiError
from messi.core.records import EvaluationRecord, Role
from messi.core.rundir import RunDir
from messi.data.datasets.arrays import Arrays
from messi.data.datasets.folder import Folder
from messi.data.datasets.table import Table
from messi.engine import build
from messi.engine.config import RunConfig, TrainingConfig
from messi.engine.evaluate import evaluate_run
from messi.engine.protocols import ProtocolName
from messi.engine.run import run
from messi.models.encoder import EncoderConfig

MakeFolder = Callable[..., Path]
SOURCES, TARGET = ("paint", "sketch"), "photo"


def train(root: Path, out: Path, protocol: ProtocolName = "messi") -> Path:
    config = RunConfig(
        data=Folder(path=str(root)),
        target=(TARGET,),
        algorithm=ERM.Config(),
        encoder=EncoderConfig(backbone="tiny_cnn"),
        protocol=protocol,
        training=TrainingConfig(steps=4, evaluate_every=2, batch_per_domain=4, validation_fraction=0.4),
        seed=3,
    )
    return run(config, out=out, device="cpu").path


@pytest.fixture
def trained(make_folder: MakeFolder, tmp_path: Path) -> Path:
    """A run on the folder ``images``: of 10 images per class, 6 are for training and 4 for validation."""
    return train(make_folder(), tmp_path / "run")


def evaluate(path: Path, root: Path) -> list[EvaluationRecord]:
    return evaluate_run(path, data=Folder(path=str(root)), device="cpu")


def counts(records: list[EvaluationRecord]) -> dict[tuple[Role, str], int]:
    return {(record.role, record.domain): record.count for record in records}


def roles(records: list[EvaluationRecord], role: Role) -> list[EvaluationRecord]:
    return [record for record in records if record.role == role]


@pytest.mark.parametrize("protocol", ["messi", "domainbed"])
@pytest.mark.parametrize("how", ["copied", "renamed", "linked", "in a table"])
def test_the_same_data_at_another_path_is_the_data_of_the_run(
    how: str, protocol: ProtocolName, make_folder: MakeFolder, tmp_path: Path
) -> None:
    root = make_folder()
    path = train(root, tmp_path / "run", protocol)
    before = evaluate_run(path, device="cpu")
    assert {record.role for record in before} == {"source_val", "target"}
    elsewhere = tmp_path / "else where"
    data: Folder | Table = Folder(path=str(elsewhere))
    if how == "copied":
        shutil.copytree(root, elsewhere)
    elif how == "renamed":
        root.rename(elsewhere)
    elif how == "linked":
        elsewhere.symlink_to(root)
    else:
        files = sorted(file.relative_to(root) for file in root.rglob("*.png"))
        rows = [f"{file},{file.parts[1]},{file.parts[0]}" for file in files]
        (tmp_path / "table.csv").write_text("\n".join(["path,label,domain", *rows]))
        data = Table(path=str(tmp_path / "table.csv"), root=str(root))
    assert evaluate_run(path, data=data, device="cpu") == before
    lone = shutil.copy(path / "model.safetensors", tmp_path / "lone.safetensors")
    assert evaluate_run(Path(lone), data=data, device="cpu") == before


def test_only_new_images_are_targets_in_a_source_domain(
    trained: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = evaluate_run(trained, device="cpu")
    root = tmp_path / "images"
    for file in (root / "paint" / "across").iterdir():
        content = file.read_bytes()
        file.with_name(f"new-{file.name}").write_bytes(content + b"\0")
    after = evaluate(trained, root)
    assert counts(after) == {
        ("train", "paint"): 12,
        ("train", "sketch"): 12,
        ("source_val", "paint"): 8,
        ("source_val", "sketch"): 8,
        ("target", "paint"): 10,
        ("target", TARGET): 20,
    }
    assert roles(after, "source_val") == roles(before, "source_val")
    assert roles(after, "target")[1:] == roles(before, "target")
    assert "The run has seen 40 of these 70 examples: 24 as train, 16 as source_val." in caplog.text


def test_renamed_domains_swapped_labels_and_other_file_names_hide_nothing(trained: Path, tmp_path: Path) -> None:
    before, root = evaluate_run(trained, device="cpu"), tmp_path / "images"
    for domain, name in (("paint", "z"), ("sketch", "new hospital"), (TARGET, "a")):
        (root / domain).rename(root / name)
    after = evaluate(trained, root)
    assert counts(after) == {
        ("train", "new hospital"): 12,
        ("train", "z"): 12,
        ("source_val", "new hospital"): 8,
        ("source_val", "z"): 8,
        ("target", "a"): 20,
    }
    accuracy = {record.domain: record.accuracy for record in before}
    assert {r.domain: r.accuracy for r in after if r.role != "train"} == {
        "z": accuracy["paint"],
        "new hospital": accuracy["sketch"],
        "a": accuracy[TARGET],
    }
    for folder in root.iterdir():
        (folder / "across").rename(folder / "x")
        (folder / "upright").rename(folder / "across")
        (folder / "x").rename(folder / "upright")
        for number, file in enumerate(sorted(folder.rglob("*.png"))):
            file.rename(file.with_name(f"{number}.jpeg"))
    swapped = evaluate(trained, root)
    assert counts(swapped) == counts(after)
    assert [r.accuracy for r in swapped] == pytest.approx([1 - r.accuracy for r in after])


def test_a_subset_has_the_roles_of_its_examples(trained: Path, tmp_path: Path) -> None:
    """Each image of a class of a domain, evaluated alone, has the same role as in the whole data."""
    found: list[Role] = []
    for number in range(10):
        root = tmp_path / f"one-{number}" / "place"
        (root / "across").mkdir(parents=True)
        shutil.copy(tmp_path / "images" / "paint" / "across" / f"{number}.png", root / "across")
        (record,) = evaluate(trained, root.parent)
        found.append(record.role)
    assert sorted(found) == ["source_val"] * 4 + ["train"] * 6
    shutil.copytree(tmp_path / "images" / TARGET, tmp_path / "target only" / TARGET)
    assert evaluate(trained, tmp_path / "target only") == roles(evaluate_run(trained, device="cpu"), "target")


def test_an_image_of_the_target_that_was_also_trained_on_is_not_a_target(
    make_folder: MakeFolder, tmp_path: Path
) -> None:
    root = make_folder()
    for number in range(10):
        shutil.copy(root / "paint" / "across" / f"{number}.png", root / TARGET / "across")
    path = train(root, tmp_path / "run")
    shutil.copytree(root / TARGET, tmp_path / "copy" / TARGET)
    assert counts(evaluate(path, tmp_path / "copy")) == {
        ("train", TARGET): 6,
        ("source_val", TARGET): 4,
        ("target", TARGET): 10,
    }


def test_features_and_official_parts_are_recognised_too(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    parts = np.array((["train"] * 8 + ["id_val"] * 6 + ["id_test"] * 6) * 2 + ["val"] * 20 + ["test"] * 20)
    whole: dict[str, Any] = {
        "inputs": rng.normal(size=(80, 3)),
        "labels": np.arange(80) % 2,
        "domains": np.repeat(["a", "b", "c", "d"], 20),
        "split": parts,
    }
    np.savez(tmp_path / "data.npz", **whole)
    training = TrainingConfig(steps=4, evaluate_every=2, batch_per_domain=4, split="official", selection="unseen_val")
    config = RunConfig(data=Arrays(path=str(tmp_path / "data.npz")), training=training)
    path = run(config, out=tmp_path / "run", device="cpu").path
    before = evaluate_run(path, device="cpu")
    np.savez(tmp_path / "less.npz", **{name: values[1:] for name, values in whole.items()})
    less = evaluate_run(path, data=Arrays(path=str(tmp_path / "less.npz")), device="cpu")
    assert counts(less) == {("train", "a"): 7, ("train", "b"): 8} | counts(before)
    assert [record for record in less if record.role != "train"] == before
    other = {**whole, "inputs": whole["inputs"] + 1e-3}
    np.savez(tmp_path / "other.npz", **other)
    new = evaluate_run(path, data=Arrays(path=str(tmp_path / "other.npz")), device="cpu")
    assert counts(new) == {("target", domain): 20 for domain in "abcd"}


def test_if_the_training_examples_are_unknown_this_is_reported(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "images"
    with monkeypatch.context() as earlier:
        earlier.setattr(build, "tensors_checksum", lambda _tensors: None)
        old = train(root, tmp_path / "run of an earlier messi")
    RunDir(old).seen.unlink()
    (root / "paint" / "across" / "0.png").unlink()
    lone = shutil.copy(trained / "model.safetensors", tmp_path / "lone.safetensors")
    assert {record.role for record in evaluate(Path(lone), root)} == {"target"}
    assert "may have been trained on some of these examples: it is outside of its run folder" in caplog.text
    assert {record.role for record in evaluate(old, root)} == {"target"}
    assert "it was trained by an earlier version of messi" in caplog.text


def test_the_file_of_seen_examples_must_be_complete_and_of_this_run_and_can_be_rewritten(
    trained: Path, tmp_path: Path
) -> None:
    folder, root = RunDir(trained), tmp_path / "images"
    seen = folder.seen.read_bytes()
    other = train(root, tmp_path / "domainbed's split", "domainbed")
    same_data = {json.loads(RunDir(path).description.read_text())["data"] for path in (trained, other)}
    assert len(same_data) == 1
    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    (copy / "paint" / "across" / "0.png").unlink()
    right = evaluate(trained, copy)
    for wrong in (RunDir(other).seen.read_bytes(), folder.model.read_bytes(), None):
        folder.seen.unlink() if wrong is None else folder.seen.write_bytes(wrong)
        with pytest.raises(MessiError, match=r"seen.safetensors is missing, damaged or of another run; delete it and"):
            evaluate(trained, copy)
    folder.result.unlink()
    assert train(root, trained) == trained
    assert folder.seen.read_bytes() == seen
    assert evaluate(trained, copy) == right


@pytest.mark.parametrize("given", ["folder", "file", "link to the file"])
@pytest.mark.parametrize("place", ["its own", "a copy", "only the target"])
def test_the_model_of_an_unfinished_run_is_not_evaluated(given: str, place: str, trained: Path, tmp_path: Path) -> None:
    RunDir(trained).result.unlink()
    path = {"folder": trained, "file": trained / "model.safetensors", "link to the file": tmp_path / "link"}[given]
    (tmp_path / "link").symlink_to(trained / "model.safetensors")
    data = None
    if place != "its own":
        shutil.copytree(tmp_path / "images", tmp_path / "copy")
        data = Folder(path=str(tmp_path / "copy"))
    if place == "only the target":
        for domain in SOURCES:
            shutil.rmtree(tmp_path / "copy" / domain)
    with pytest.raises(MessiError, match=r"run is not a finished run: result.json is missing"):
        evaluate_run(path, data=data, device="cpu")


def test_a_model_file_in_its_run_folder_is_evaluated_like_the_folder(trained: Path, tmp_path: Path) -> None:
    assert evaluate_run(trained / "model.safetensors", device="cpu") == evaluate_run(trained, device="cpu")
    lone = shutil.copy(trained / "model.safetensors", tmp_path / "lone.safetensors")
    with pytest.raises(MessiError, match=r"is a model outside of its run folder; name the data .* with --data"):
        evaluate_run(Path(lone), device="cpu")
