"""A run on data that was moved or renamed is the same run: it is resumed, and ends with the same bits."""

import dataclasses
import json
import os
import shutil
import signal
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from messi.algorithms.erm import ERM
from messi.core.errors import MessiError
from messi.core.rundir import RunDir
from messi.data.datasets.arrays import Arrays
from messi.data.datasets.folder import Folder
from messi.data.datasets.table import Table
from messi.engine.config import RunConfig, TrainingConfig
from messi.engine.evaluate import evaluate_run
from messi.engine.interrupt import Interrupted
from messi.engine.run import run
from messi.models.encoder import EncoderConfig

MakeFolder = Callable[..., Path]
FILES = ("model.safetensors", "last.safetensors", "seen.safetensors", "records.jsonl", "result.json", "run.json")


class StopAfterStep:
    """Requests a stop after a step, as Ctrl-C does."""

    def __init__(self, step: int) -> None:
        self.step = step

    def stepped(self, step: int) -> None:
        if step == self.step:
            os.kill(os.getpid(), signal.SIGTERM)

    def started(self, step: int, steps: int) -> None: ...

    def logged(self, step: int, terms: Mapping[str, float]) -> None: ...

    def evaluated(self, step: int, accuracy: float) -> None: ...

    def finished(self) -> None: ...


def config_of(data: Folder | Table | Arrays, **changes: object) -> RunConfig:
    config = RunConfig(
        data=data,
        target=("photo",),
        algorithm=ERM.Config(),
        encoder=EncoderConfig(backbone="tiny_cnn"),
        training=TrainingConfig(steps=6, evaluate_every=2, batch_per_domain=4),
    )
    return dataclasses.replace(config, **changes)  # type: ignore[arg-type]


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in FILES}


@pytest.mark.parametrize("out", ["run", None])
def test_an_interrupted_run_resumes_with_renamed_data_and_ends_with_the_same_bits(
    out: str | None, make_folder: MakeFolder, tmp_path: Path
) -> None:
    make_folder()
    before = config_of(Folder(path="images"))
    uninterrupted = contents(run(before, out="uninterrupted", device="cpu").path)
    with pytest.raises(Interrupted, match="Stopped erm with target photo after step 4 of 6"):
        run(before, out=out, device="cpu", observers=[StopAfterStep(3)])
    Path("images").rename("renamed")
    result = run(config_of(Folder(path=str(tmp_path / "renamed"))), out=out, device="cpu")
    assert result.fresh
    assert contents(result.path) == uninterrupted
    assert len(list(Path().glob("runs/*"))) == (0 if out else 1)
    again = run(config_of(Folder(path="renamed")), out=out, device="cpu")
    assert again == dataclasses.replace(result, fresh=False)
    assert contents(result.path) == uninterrupted


def test_a_run_in_the_default_folder_is_found_and_this_is_reported(
    make_folder: MakeFolder, caplog: pytest.LogCaptureFixture
) -> None:
    make_folder()
    first = run(config_of(Folder(path="images")), device="cpu")
    assert run(config_of(Folder(path="./images")), device="cpu") == dataclasses.replace(first, fresh=False)
    assert f"Using the run {first.path}, which has the same settings and the same data at another path" in caplog.text
    shutil.copytree("images", "copy")
    assert not run(config_of(Folder(path="copy")), device="cpu").fresh
    shutil.rmtree("images")
    with pytest.raises(MessiError, match=r"was trained on images, which does not exist; .* with --data"):
        evaluate_run(first.path, device="cpu")


@pytest.mark.parametrize("what", ["content", "name", "label", "seed", "setting", "version", "damaged"])
def test_a_different_run_is_trained_in_a_separate_folder(what: str, make_folder: MakeFolder) -> None:
    make_folder()
    first = run(config_of(Folder(path="images")), device="cpu").path
    shutil.copytree("images", "copy")
    described = json.loads((first / "run.json").read_text())
    image = Path("copy/paint/across/0.png")
    changes: dict[str, object] = {}
    if what == "content":
        image.write_bytes(image.read_bytes() + b"\0")
    elif what == "name":
        image.rename(image.with_name("first.png"))
    elif what == "label":
        image.rename(image.parent.with_name("upright") / "moved.png")
    elif what == "seed":
        changes = {"seed": 1}
    elif what == "setting":
        changes = {"training": TrainingConfig(steps=5, evaluate_every=2, batch_per_domain=4)}
    elif what == "version":
        (first / "run.json").write_text(json.dumps({**described, "version": "0.0.1"}))
    else:
        (first / "run.json").write_text("{")
    second = run(config_of(Folder(path="copy"), **changes), device="cpu")
    assert second.fresh
    assert second.path != first


@pytest.mark.parametrize("damage", [{"data": None}, None, {"data": {"name": "folder", "path": 3}}])
def test_a_damaged_config_in_a_neighbouring_folder_does_not_prevent_a_run(
    damage: object, make_folder: MakeFolder
) -> None:
    make_folder()
    config = config_of(Folder(path="images")).resolved()
    other = RunDir(Path("runs") / f"{config.folder_name().rpartition('_')[0]}_0123456789ab")
    other.path.mkdir(parents=True)
    described = damage if not isinstance(damage, dict) else {**config.to_dict(), **damage}
    other.description.write_text(json.dumps({"config": described}))
    assert run(config, device="cpu").fresh


def test_a_named_folder_accepts_moved_data_but_no_changed_data(make_folder: MakeFolder, tmp_path: Path) -> None:
    root = make_folder()
    run(config_of(Folder(path=str(root))), out=tmp_path / "run", device="cpu")
    root.rename(tmp_path / "renamed")
    moved = config_of(Folder(path=str(tmp_path / "renamed")))
    assert not run(moved, out=tmp_path / "run", device="cpu").fresh
    RunDir(tmp_path / "run").result.unlink()
    (tmp_path / "renamed" / "paint" / "across" / "0.png").unlink()
    with pytest.raises(MessiError, match=r"The data has changed since the run"):
        run(moved, out=tmp_path / "run", device="cpu")
    changed = config_of(Folder(path=str(tmp_path / "renamed"), damaged="leave_out"))
    with pytest.raises(MessiError, match=r"another config: data.damaged was 'refuse' and is now 'leave_out'"):
        run(changed, out=tmp_path / "run", device="cpu")


def test_tables_and_arrays_may_be_moved_too(make_folder: MakeFolder, tmp_path: Path) -> None:
    root = make_folder()
    files = sorted(file.relative_to(root) for file in root.rglob("*.png"))
    lines = ["path,label,domain", *(f"{file},{file.parts[1]},{file.parts[0]}" for file in files)]
    (tmp_path / "table.csv").write_text("\n".join(lines))
    table = Table(path=str(tmp_path / "table.csv"), root=str(root))
    run(config_of(table), out=tmp_path / "run", device="cpu")
    (tmp_path / "table.csv").rename(root / "all.csv")
    root.rename(tmp_path / "renamed")
    moved = Table(path=str(tmp_path / "renamed" / "all.csv"))
    assert not run(config_of(moved), out=tmp_path / "run", device="cpu").fresh

    inputs = np.random.default_rng(0).normal(size=(60, 3))
    np.savez(tmp_path / "a.npz", inputs=inputs, labels=np.arange(60) % 2, domains=np.repeat(["a", "b", "photo"], 20))
    mlp = EncoderConfig(backbone="mlp")
    run(config_of(Arrays(path=str(tmp_path / "a.npz")), encoder=mlp), out=tmp_path / "arrays", device="cpu")
    (tmp_path / "a.npz").rename(tmp_path / "b.npz")
    again = config_of(Arrays(path=str(tmp_path / "b.npz")), encoder=mlp)
    assert not run(again, out=tmp_path / "arrays", device="cpu").fresh
