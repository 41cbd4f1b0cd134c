"""messi predict on features and images in .npz files, and what training prints about its data."""

import csv
import io
from pathlib import Path

import numpy as np
import pytest
import torch

from messi.cli.main import main
from messi.core.errors import MessiError
from messi.data.datasets.arrays import Arrays
from messi.engine.config import RunConfig, TrainingConfig
from messi.engine.run import run
from messi.evaluation.model import load
from messi.models.encoder import EncoderConfig

TRAINING = TrainingConfig(steps=5, evaluate_every=5, batch_per_domain=4)
FEATURES = np.random.default_rng(0).normal(size=(24, 3)).astype(np.float32)
DOMAINS, LABELS = np.repeat(["a", "b", "c"], 8), np.tile(["x", "y"], 12)


def train(folder: Path, inputs: np.ndarray, labels: np.ndarray = LABELS, image_size: int | None = None) -> Path:
    folder.mkdir(exist_ok=True)
    np.savez(folder / "data.npz", inputs=inputs, labels=labels, domains=DOMAINS)
    config = RunConfig(
        data=Arrays(path=str(folder / "data.npz")),
        target=("c",),
        training=TRAINING,
        encoder=EncoderConfig(image_size=image_size),
    )
    return run(config, out=folder / "run", device="cpu").path


@pytest.fixture(scope="module", name="trained")
def _trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("features"), FEATURES)


def predicted(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> list[dict[str, str]]:
    capsys.readouterr()
    assert main(["predict", *map(str, arguments), "--device", "cpu", "--format", "csv"]) == 0
    return list(csv.DictReader(io.StringIO(capsys.readouterr().out)))


def test_every_row_of_features_gets_a_class_a_probability_and_expert_weights(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "new.npz", inputs=FEATURES[:5], other=FEATURES[5:7].astype(np.float64))
    answers = load(trained).predict(torch.from_numpy(FEATURES))
    rows = predicted(capsys, trained, tmp_path / "new.npz")
    assert [row["row"] for row in rows] == ["0", "1", "2", "3", "4"]
    assert {row["file"] for row in rows} == {str(tmp_path / "new.npz")}
    assert [row["class"] for row in rows] == answers.labels[:5]
    wanted = answers.probabilities.max(1).values
    assert [float(row["probability"]) for row in rows] == pytest.approx(wanted[:5].tolist(), rel=1e-5)
    assert answers.experts is not None
    assert [float(row["expert1"]) for row in rows] == pytest.approx(answers.experts[:5, 0].tolist(), rel=1e-4)
    others = predicted(capsys, trained, tmp_path / "new.npz", "--inputs-array", "other")
    assert [float(row["probability"]) for row in others] == pytest.approx(wanted[5:7].tolist(), rel=1e-5)


@pytest.mark.parametrize(
    ("inputs", "sentence"),
    [
        (
            FEATURES[:, :2],
            "'inputs' in {path} must contain rows of 3 features, like the model's training data, but has rows of 2",
        ),
        (
            np.zeros((2, 8, 8), np.uint8),
            "must contain rows of 3 features, like the model's training data, but has uint8 images",
        ),
        (np.array([["1", "2", "3"]]), "must be features [N, F] or uint8 images of up to three channels, but has type"),
        (np.array([[1, 2, 3], [4, np.inf, np.inf]]), "2 in 1 of 2 rows, the first in row 1, column 1, counted from 0."),
    ],
)
def test_inputs_that_a_model_cannot_take_get_one_sentence(
    inputs: np.ndarray, sentence: str, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "new.npz"
    np.savez(path, inputs=inputs)
    assert main(["predict", str(trained), str(path), "--device", "cpu"]) == 2
    said = capsys.readouterr()
    assert sentence.format(path=path) in said.err
    assert (len(said.err.strip().splitlines()), said.out) == (1, "")


def test_a_model_of_features_reports_the_input_that_it_takes(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", str(trained), str(tmp_path / "new.png"), "--device", "cpu"]) == 2
    said = capsys.readouterr().err
    assert f"takes features, but {tmp_path}/new.png is neither a table (.csv, .tsv, .parquet) nor an .npz file" in said
    model = load(trained)
    with pytest.raises(MessiError, match=r"The input contains .*: 1 in 1 of 2 rows, the first in row 1, column 2"):
        model.predict(torch.tensor([[1.0, 2, 3], [1, 2, torch.inf]]))
    wanted = model.predict(torch.tensor([[1.0, 2, 3], [1, 2, model.spec.mean[2]]])).probabilities
    for same in (
        torch.tensor([[1.0, 2, 3], [1, 2, torch.nan]]),
        np.array([[1, 2, 3], [1, 2, np.nan]]),
        [torch.tensor([1.0, 2, 3]), torch.tensor([1.0, 2, torch.nan])],
    ):
        torch.testing.assert_close(model.predict(same).probabilities, wanted)
    torch.testing.assert_close(model.predict(np.array([[1, 2, 3]], np.uint8)).probabilities, wanted[:1])


def test_images_in_an_array_are_classified_at_the_chosen_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (24, 40, 36, 3), np.uint8)
    path = train(tmp_path, pixels, image_size=32)
    model = load(path)
    assert model.spec.shape == (3, 32, 32)
    rows = predicted(capsys, path, tmp_path / "data.npz")
    assert [row["class"] for row in rows] == model.predict(torch.from_numpy(pixels).permute(0, 3, 1, 2)).labels


def test_a_class_that_only_the_target_has_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    train(tmp_path, FEATURES, np.where(np.arange(24) == 20, "odd", LABELS))
    (note,) = [record.message for record in caplog.records]
    assert note.startswith("Some classes of the target have no training examples")
    assert note.endswith(": 'odd' (in c).")


def test_a_single_class_in_training_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    train(tmp_path, FEATURES, np.where(DOMAINS == "c", "odd", "even"))
    single, _ = [record.message for record in caplog.records]
    assert single.startswith("All training examples have the class 'even', so the model can only answer this class")
    assert "--label " in single
    assert "--labels-array " in single


def test_quantities_and_identifiers_as_labels_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    many, decimals, few = ([f"{(place % n) / 8:.3f}" for place in range(24)] for n in (24, 14, 10))
    for labels in ([f"p{place}" for place in range(24)], many, decimals):
        caplog.clear()
        train(tmp_path / labels[-1], FEATURES, np.array(labels))
        assert any("which look like quantities or identifiers" in record.message for record in caplog.records), labels
    caplog.clear()
    train(tmp_path / "few", FEATURES, np.array(few))
    assert not any("quantities" in record.message for record in caplog.records)


def test_training_prints_the_size_that_images_are_resized_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (24, 64, 64, 3), np.uint8)
    np.savez(tmp_path / "data.npz", inputs=pixels, labels=LABELS, domains=DOMAINS)
    common = [
        "train",
        "--data",
        str(tmp_path / "data.npz"),
        "--target",
        "c",
        "--backbone",
        "tiny_cnn",
        "--device",
        "cpu",
    ]
    common += ["--steps", "2", "--evaluate-every", "2", "--batch-per-domain", "2", "--algorithm", "erm"]
    assert main([*common, "--out", str(tmp_path / "small")]) == 0
    summary = "data    24 examples, 3 domains, 2 classes, images 64 x 64"
    assert capsys.readouterr().out.splitlines()[0] == f"{summary}, resized to 28 x 28"
    assert main([*common, "--image-size", "64", "--out", str(tmp_path / "whole")]) == 0
    assert capsys.readouterr().out.splitlines()[0] == summary
    assert main(["data", "show", str(tmp_path / "data.npz"), "--out", str(tmp_path / "sheet.png")]) == 0
    assert "24 examples, 3 domains, 2 classes, images 64 x 64; fingerprint" in capsys.readouterr().out
