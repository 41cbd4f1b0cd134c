"""The bank of a run: built once, bound to its model, and refused if it is damaged."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.neighbors import NearestNeighbors

from messi.algorithms.erm import ERM
from messi.core.errors import MessiError
from messi.core.rundir import RunDir
from messi.core.tensorfile import read_tensors, write_tensors
from messi.data.datasets.feature_table import FeatureTable
from messi.data.datasets.folder import Folder
from messi.diagnostics.novelty import NEIGHBOURS
from messi.engine.config import RunConfig
from messi.engine.run import run as train
from messi.engine.training_config import TrainingConfig
from messi.evaluation.model import load
from messi.evaluation.predict import predict_and_encode
from messi.serving.documents import Answer
from messi.serving.known_domains import NoBankError, known_domains
from messi.serving.predictor import Predictor
from messi.serving.ready_input import ReadyInput


@pytest.fixture
def run(image_run: Path, tmp_path: Path) -> Path:
    """Return a copy of the run without a bank."""
    shutil.copytree(image_run / "run", tmp_path / "run", ignore=shutil.ignore_patterns("novelty.safetensors"))
    return tmp_path / "run"


def test_the_bank_is_the_validation_part_and_is_built_once(run: Path) -> None:
    model = load(run)
    built = known_domains(run, model)
    assert sorted(built.names) == ["paint", "photo"]
    assert torch.bincount(built.bank.domains).tolist() == [12, 12]  # 20 % of 60 images each
    torch.testing.assert_close(built.bank.points.norm(dim=1), torch.ones(24))
    content = RunDir(run).novelty.read_bytes()
    again = known_domains(run, model, data=Folder(path="nowhere"))  # the data are not needed any more
    assert again.threshold == built.threshold
    assert again.quality == built.quality
    assert torch.equal(again.bank.points, built.bank.points)
    assert RunDir(run).novelty.read_bytes() == content


def test_rows_of_a_table_are_compared_as_the_encoder_gets_them(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    height, colour = random.normal(1000, 50, 120), random.choice(["blue", "red"], 120)
    domain, label = np.repeat(["a", "b", "c"], 40), np.where(height > 1000, "tall", "short")
    table = pd.DataFrame({"label": label, "domain": domain, "height": height, "colour": colour})
    table.to_csv(tmp_path / "table.csv", index=False)
    data = FeatureTable(path=str(tmp_path / "table.csv"))
    config = RunConfig(data=data, target=("c",), algorithm=ERM.Config(), training=TrainingConfig(steps=5))
    model = load(train(config, out=tmp_path / "run", device="cpu").path)
    built = known_domains(tmp_path / "run", model)

    standard = (height - model.spec.mean[0]) / model.spec.std[0]
    rows = np.stack([standard, colour == "blue", colour == "red"], axis=1).astype(np.float32)
    for number, name in enumerate(built.names):
        points = built.bank.points[built.bank.domains == number].numpy()
        assert len(points) == 8  # 20 % of 40 rows
        nearest = NearestNeighbors(n_neighbors=1).fit(rows[domain == name]).kneighbors(points)[0]
        np.testing.assert_allclose(nearest, 0, atol=1e-5)

    absurd = np.array([[1e6, 0, 1]], dtype=np.float32)
    asked = np.concatenate([rows[domain == "c"], absurd])
    neighbours = NearestNeighbors(n_neighbors=NEIGHBOURS).fit(built.bank.points.numpy())
    answers = Predictor(model, built)([ReadyInput(torch.from_numpy(row)) for row in asked])
    found = [answer.likeness for answer in answers if isinstance(answer, Answer) and answer.likeness]
    np.testing.assert_allclose([one.distance for one in found], neighbours.kneighbors(asked)[0].mean(1), rtol=1e-5)
    assert [one.unlike_training for one in found] == [one.distance > built.threshold for one in found]
    assert found[-1].unlike_training


def test_features_of_one_pass_change_no_bit_of_the_prediction(run: Path, image_run: Path) -> None:
    model = load(run)
    files = sorted((image_run / "images").rglob("*.png"))[:9]
    inputs = model.prepare_images(files, torch.device("cpu"))
    prediction, features = predict_and_encode(model.algorithm, [inputs])
    assert features is not None
    assert torch.equal(features, model.algorithm.inspect(inputs).encoded.detach())  # type: ignore[union-attr]
    assert torch.equal(prediction.logits.softmax(-1), model.predict(files).probabilities)
    assert not any(module._forward_hooks for module in model.algorithm.modules())


def test_moved_data_are_found_by_their_new_path(run: Path, image_run: Path, tmp_path: Path) -> None:
    shutil.copytree(image_run / "images", tmp_path / "moved")
    model = load(run)
    model.description.config["data"]["path"] = str(tmp_path / "gone")
    built = known_domains(run, model, data=Folder(path=str(tmp_path / "moved")))
    assert len(built.bank.points) == 24
    shutil.rmtree(tmp_path / "moved" / "paint" / "across")
    RunDir(run).novelty.unlink()
    with pytest.raises(NoBankError, match=r"The data of .* has changed since the run; serve the run folder, with"):
        known_domains(run, model, data=Folder(path=str(tmp_path / "moved")))


def test_a_model_outside_of_its_run_is_served_without_a_warning(run: Path, tmp_path: Path) -> None:
    shutil.copy(run / "model.safetensors", tmp_path / "model.safetensors")
    sentence = r"is a model outside of its run folder; serve the run folder, with the data of the run unchanged"
    with pytest.raises(NoBankError, match=sentence):
        known_domains(tmp_path / "model.safetensors", load(tmp_path / "model.safetensors"))
    assert not (tmp_path / "novelty.safetensors").exists()


@pytest.mark.parametrize("part", ["model", "names", "domains", "points", "width", "threshold", "bytes", "earlier"])
def test_a_bank_that_does_not_fit_is_refused_in_one_sentence(run: Path, part: str) -> None:
    model = load(run)
    known_domains(run, model)
    file = RunDir(run).novelty
    tensors, description = read_tensors(file)
    if part in ("model", "names", "threshold"):
        description[part] = {"model": "0" * 32, "names": ["paint"], "threshold": "far"}[part]
    elif part == "domains":
        tensors["domains"][0] = 7
    elif part == "points":
        tensors["points"][0, 0] = torch.nan
    elif part == "width":
        tensors["points"] = tensors["points"][:, 1:].clone()
    elif part == "earlier":  # as before the score of rows was chosen
        tensors["features"], description["longest"] = tensors.pop("points"), 1.0
    write_tensors(file, tensors, description)
    if part == "bytes":
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)
    with pytest.raises(MessiError, match=r"delete it|Restore it from a copy") as caught:
        known_domains(run, model)
    assert not isinstance(caught.value, NoBankError)
    assert "\n" not in str(caught.value)
