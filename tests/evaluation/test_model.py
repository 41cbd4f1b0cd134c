import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from messi.core import info
from messi.core.documents import write_document
from messi.core.errors import MessiError
from messi.core.info import version
from messi.core.rundir import RunDir
from messi.core.tensorfile import read_tensors, write_tensors
from messi.data.datasets.rotated_colored_mnist import RotatedColoredMNIST
from messi.data.image_files import to_picture
from messi.diagnostics.routing import mean_routing_by_class
from messi.engine.config import RunConfig, TrainingConfig
from messi.engine.evaluate import evaluate_run
from messi.engine.run import run
from messi.estimator import DomainClassifier
from messi.evaluation.model import Model, load
from messi.models.encoder import EncoderConfig
from messi.serving.export import export


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """Return a finished run, which tests only read."""
    config = RunConfig(
        data=RotatedColoredMNIST(environments=10, num_sources=2),
        encoder=EncoderConfig(backbone="tiny_cnn"),
        training=TrainingConfig(steps=2, evaluate_every=2, batch_per_domain=4),
    )
    return RunDir(run(config, out=tmp_path_factory.mktemp("model") / "run", device="cpu").path)


@pytest.fixture(scope="module")
def model(folder: RunDir) -> Model:
    return load(folder.path)


def test_a_file_a_picture_and_a_tensor_of_one_image_give_the_same_prediction(model: Model, tmp_path: Path) -> None:
    pixels = torch.randint(256, (2, 28, 28), dtype=torch.uint8)
    picture = to_picture(pixels)
    picture.save(tmp_path / "image.png")
    answers = model.predict([tmp_path / "image.png", str(tmp_path / "image.png"), picture, pixels])
    assert answers.experts is not None
    for answer in (answers.probabilities, answers.experts):
        torch.testing.assert_close(answer, answer[:1].expand(4, -1))
        torch.testing.assert_close(answer.sum(-1), torch.ones(4))
    assert set(answers.labels) <= {"digits 5-9", "digits 0-4"}


def test_the_batch_size_does_not_change_predictions_of_images_of_any_size(model: Model) -> None:
    images = [torch.randint(256, (2, 20 + 3 * i, 30), dtype=torch.uint8) for i in range(7)]
    one, many = model.predict(images, batch_size=1), model.predict(images, batch_size=64)
    torch.testing.assert_close(one.probabilities, many.probabilities, rtol=1e-5, atol=1e-6)


def test_threads_that_resize_images_may_write_their_results(model: Model) -> None:
    """They are not in inference mode, unlike the thread that predicts."""
    images = [torch.randint(256, (2, 40, 30), dtype=torch.uint8) for _ in range(7)]
    alone = model.predict(images).probabilities
    torch.set_num_threads(2)
    try:
        together = model.predict(images).probabilities
    finally:
        torch.set_num_threads(1)
    torch.testing.assert_close(together, alone)


def test_inputs_that_do_not_fit_are_named(model: Model) -> None:
    with pytest.raises(MessiError, match=r"must have the shape \(2, 28, 28\), but has \(3, 28, 28\)"):
        model.predict([torch.zeros(3, 28, 28, dtype=torch.uint8)])
    with pytest.raises(MessiError, match="must be uint8"):
        model.predict([torch.zeros(2, 28, 28)])
    with pytest.raises(MessiError, match="nothing to predict"):
        model.predict([])
    with pytest.raises(MessiError, match=r"missing.png cannot be read: No such file"):
        model.predict(["missing.png"])
    for inputs in (None, "photo.png", Path("photo.png"), Image.new("RGB", (4, 4)), {"a": 1}):
        with pytest.raises(MessiError, match=r"takes images as a list of files, .* but the input is of the type"):
            model.predict(inputs)  # type: ignore[arg-type]
    with pytest.raises(MessiError, match=r"takes images as a list of files, .* but an input is of the type list"):
        model.predict([[1, 2, 3]])


@pytest.fixture
def of_features(tmp_path: Path, quick_config: RunConfig) -> Model:
    return load(run(quick_config, out=tmp_path / "run", device="cpu").path)


def test_a_model_of_features_takes_no_pictures(of_features: Model) -> None:
    with pytest.raises(MessiError, match="takes 3 features, not images"):
        of_features.predict([Image.new("RGB", (4, 4))])
    assert of_features.predict(torch.zeros(2, 3)).probabilities.shape == (2, 2)


def test_features_are_accepted_in_every_usual_form(of_features: Model) -> None:
    rows = [[1.0, 2.5, 3.0], [4.0, 5.0, 6.0]]
    wanted = of_features.predict(torch.tensor(rows)).probabilities
    reversed_rows = np.array(rows[::-1])[::-1]
    forms: list[Any] = [rows, [tuple(row) for row in rows], [np.array(row) for row in rows], reversed_rows]
    for same in forms:
        torch.testing.assert_close(of_features.predict(same).probabilities, wanted)


@pytest.mark.parametrize(
    ("inputs", "sentence"),
    [
        (None, "takes rows of 3 features as a tensor, .* but the input is of the type NoneType"),
        ({"a": 1}, "takes rows of 3 features .* but the input is of the type dict"),
        ("x.csv", "takes rows of 3 features .* but the input is of the type str"),
        (torch.tensor(1.0), "takes rows of 3 features .* but the input is of the type Tensor"),
        ([["a", "b", "c"]], "takes rows of 3 features .* but the input has other values, or rows of several lengths"),
        ([[1, 2, 3], [1, 2]], "takes rows of 3 features .* but the input has other values, or rows of several lengths"),
        ([{"a": 1}], "takes rows of 3 features .* but the input has other values"),
        ([torch.zeros(3), [1, 2, 3]], "takes rows of 3 features .* but an input is of the type list"),
        ([[1, None, 3]], "The input contains infinite values or NaN: 1 in 1 of 1 rows"),
        ([1, 2, np.inf], r"takes rows of 3 features, but the input has the shape \[3\]"),
        ([[1, 2]], r"takes rows of 3 features, but the input has the shape \[1, 2\]"),
        ([[1, 2, 1e200]], "The input contains numbers that are too large for float32: 1 in 1 of 1 rows, .* column 2"),
        (torch.tensor([[1, 2, -1e200]]).double() * 10, "The input contains .*: 1 in 1 of 1 rows"),
    ],
)
def test_features_of_other_forms_give_one_sentence(of_features: Model, inputs: Any, sentence: str) -> None:
    for call in (of_features.predict, of_features.encode):
        with pytest.raises(MessiError, match=sentence) as raised:
            call(inputs)
        assert "\n" not in str(raised.value)


def test_a_checkpoint_is_not_taken_for_a_model(folder: RunDir, tmp_path: Path) -> None:
    with pytest.raises(MessiError, match="is not a model file"):
        load(folder.last)
    with pytest.raises(MessiError, match="is not a run folder"):
        load(tmp_path)
    Image.new("RGB", (4, 4)).save(tmp_path / "x.png")
    (tmp_path / "t.csv").write_text("age,label\n40,a\n")
    for name in ("x.png", "t.csv"):
        for reader in (load, DomainClassifier.load, export):
            with pytest.raises(MessiError, match="damaged, truncated or not a file of messi") as caught:
                reader(tmp_path / name)
            assert "Give the folder of a run or a model file; if this is one, restore it" in str(caught.value)
            assert "last.safetensors" not in str(caught.value)


def test_a_damaged_model_in_its_run_can_be_restored_or_trained_again(folder: RunDir, tmp_path: Path) -> None:
    shutil.copytree(folder.path, tmp_path / "run")
    (tmp_path / "run" / "model.safetensors").write_bytes(folder.model.read_bytes()[:1000])
    with pytest.raises(MessiError, match=r"Restore it from a copy; a run whose last.safetensors is removed starts"):
        load(tmp_path / "run")


@pytest.mark.parametrize("part", ["weight", "config", "task", "classes"])
def test_a_model_file_of_another_version_gives_one_sentence(part: str, folder: RunDir, tmp_path: Path) -> None:
    tensors, description = read_tensors(folder.model)
    if part == "weight":
        tensors.popitem()
    elif part == "config":
        del description["config"]["encoder"]
    elif part == "task":
        description["task"]["age"] = 1
    else:
        del description["classes"]
    write_tensors(tmp_path / "old.safetensors", tensors, {**description, "version": "0.0.1"})
    sentence = r"old\.safetensors was written by messi 0\.0\.1 and does not fit messi .* Use the version that wrote it"
    with pytest.raises(MessiError, match=sentence) as caught:
        load(tmp_path / "old.safetensors")
    assert "\n" not in str(caught.value)


NEWS: dict[str, tuple[str, dict[str, Any], str]] = {
    "setting": ("algorithm", {"new_option": 1}, "There is no setting of MESSI.Config named 'new_option'; available:"),
    "similar setting": ("algorithm", {"num_expert": 1}, r"Did you mean 'num_experts'\? Use the version"),
    "value": ("algorithm", {"num_experts": 0}, "num_experts must be at least 1 and at most 10000, but is 0"),
    "method": ("algorithm", {"name": "newer"}, "There is no algorithm named 'newer'; available:"),
    "backbone": ("encoder", {"backbone": "newer_net"}, "There is no backbone named 'newer_net'"),
}


@pytest.mark.parametrize("news", NEWS)
def test_settings_of_a_newer_version_are_refused_with_that_version(news: str, folder: RunDir, tmp_path: Path) -> None:
    part, values, reason = NEWS[news]
    tensors, description = read_tensors(folder.model)
    description["config"][part] |= values
    file = tmp_path / "new.safetensors"
    sentence = rf"new\.safetensors was written by messi 9\.0\.0 and does not fit messi {version()}: .*{reason}"
    write_tensors(file, tensors, {**description, "version": "9.0.0"})
    for reader in (load, DomainClassifier.load):
        with pytest.raises(MessiError, match=sentence) as caught:
            reader(file)
        assert "\n" not in str(caught.value)
    for same_or_older in (version(), "0.1.9"):
        write_tensors(file, tensors, {**description, "version": same_or_older})
        with pytest.raises(MessiError, match=reason.removesuffix(" Use the version")) as caught:
            load(file)
        assert "was written by" not in str(caught.value)


def test_a_training_setting_of_a_newer_version_is_only_needed_for_the_data_of_the_run(
    folder: RunDir, tmp_path: Path
) -> None:
    tensors, description = read_tensors(folder.model)
    description["config"]["training"]["new_option"] = 1
    path = tmp_path / "run"
    shutil.copytree(folder.path, path)
    run_description = replace(folder.read_description(), config=description["config"], version="9.0.0")
    write_document(path / "run.json", run_description)
    description |= {"version": "9.0.0", "run": RunDir(path).identity()}
    write_tensors(path / "model.safetensors", tensors, description)
    write_document(path / "result.json", replace(folder.read_result(), files={}))
    images = [torch.zeros(2, 28, 28, dtype=torch.uint8)]
    assert load(path).predict(images).labels == load(folder.path).predict(images).labels
    sentence = r"run was written by messi 9\.0\.0 and does not .* no setting of TrainingConfig named 'new_option'"
    with pytest.raises(MessiError, match=sentence):
        evaluate_run(path, device="cpu")


@pytest.mark.parametrize(
    ("ours", "other", "newer"),
    [
        ("0.2.0", "0.2.1", True), ("0.2.0", "0.10", True), ("0.2.0", "1", True), ("0.2.0.dev1", "0.3.0rc1", True),
        ("0.2.0", "0.2.0", False), ("0.2.0", "0.1.9", False), ("0.2.0", "0.2", False), ("0.2.0", "next", False),
    ],
)  # fmt: skip
def test_versions_are_compared_as_numbers(ours: str, other: str, newer: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(info, "version", lambda: ours)
    assert info.is_newer(other) is newer


def test_mean_routing_by_class_is_the_mean_over_the_examples_of_the_class() -> None:
    routing = torch.tensor([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])
    means, counts = mean_routing_by_class(routing, torch.tensor([2, 2, 0]), num_classes=3)
    assert means.tolist() == [[0.0, 1.0], [0.0, 0.0], [0.75, 0.25]]
    assert counts.tolist() == [1, 0, 2]
