"""An exported file gives the answers of the model: on 500 images, and for every method."""

import json
import logging
import sys
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import pytest
import torch

from messi.algorithms.common.base import ALGORITHMS
from messi.core.errors import MessiError
from messi.core.tensorfile import read_tensors, write_tensors
from messi.evaluation.model import load
from messi.serving import export as module
from messi.serving.export import TOLERANCE, export
from messi.serving.export_network import NetworkInput, expected_outputs
from messi.serving.export_onnx import Onnx

from .saved import CLASSES, photos, save, sizes_of_500

TESTED_ON_500 = {"messi": "test_vit", "gmoe": "test_vit", "erm": "resnet10t"}
IMAGES = {"mixstyle": ("tiny_cnn", (3, 16, 16)), "omoe": ("test_vit", (3, 48, 48)), "dynmoe": ("test_vit", (3, 48, 48))}
"""Methods that require images; all others are tested on features."""
FEWER = {name: {"num_experts": 3, "moe_blocks": (5,)} for name in ("omoe", "dynmoe")}
"""Settings that take less time."""


def session_of(path: Path) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # others would only wait for each other
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("method", TESTED_ON_500)
def test_onnx_runtime_gives_the_same_classes_and_probabilities_on_500_images(method: str, tmp_path: Path) -> None:
    saved = save(tmp_path / "model.safetensors", method, TESTED_ON_500[method], (3, 48, 48))
    session, images = session_of(export(saved, out=tmp_path / "model.onnx").path), photos(sizes_of_500())
    answers = load(saved).predict(images)
    found = [session.run(None, {"images": image[None].numpy()}) for image in images]
    probabilities = torch.cat([torch.from_numpy(outputs[0]) for outputs in found])
    assert len(images) == 500
    assert set(answers.labels) == set(CLASSES)  # a network that always gives the same answer would prove nothing
    assert answers.probabilities.amax(1).mean() > 0.5
    assert [CLASSES[index] for index in probabilities.argmax(1).tolist()] == answers.labels
    assert (probabilities - answers.probabilities).abs().max() < TOLERANCE
    if answers.experts is not None:
        experts = torch.cat([torch.from_numpy(outputs[1]) for outputs in found])
        assert (experts - answers.experts).abs().max() < TOLERANCE
    same = torch.stack(photos([(37, 61)] * 9))
    (batch, *_) = session.run(None, {"images": same.numpy()})
    assert (torch.from_numpy(batch) - load(saved).predict(same).probabilities).abs().max() < TOLERANCE


@pytest.mark.parametrize("method", [name for name in ALGORITHMS.names() if name not in TESTED_ON_500])
def test_every_method_can_be_exported(method: str, tmp_path: Path) -> None:
    """Export compares the file with the model before it keeps it; here it is compared once more, on other inputs."""
    backbone, shape = IMAGES.get(method, ("mlp", (5,)))
    saved = save(tmp_path / "model.safetensors", method, backbone, shape, **FEWER.get(method, {}))
    exported = export(saved, out=tmp_path / "model.onnx")
    inputs = torch.stack(photos([(33, 21)] * 7, seed=5)) if method in IMAGES else torch.randn(7, *shape)
    outputs = session_of(exported.path).run(None, {exported.input: inputs.numpy()})
    wanted = expected_outputs(load(saved), inputs)
    assert len(outputs) == len(wanted)
    for found, right in zip(outputs, wanted, strict=True):
        assert (torch.from_numpy(found) - right).abs().max() < TOLERANCE


@pytest.mark.parametrize(("method", "backbone", "shape"), [("messi", "tiny_cnn", (3, 16, 16)), ("erm", "mlp", (5,))])
def test_a_file_of_torch_export_gives_the_same_answers(
    method: str, backbone: str, shape: tuple[int, ...], tmp_path: Path
) -> None:
    saved = save(tmp_path / "model.safetensors", method, backbone, shape)
    exported = export(saved, to="torch", out=tmp_path / "model.pt2")
    extra = {"metadata.json": ""}
    network, model = torch.export.load(exported.path, extra_files=extra).module(), load(saved)
    for probe in NetworkInput.of(model.spec).probes():
        with torch.inference_mode():
            found = network(probe)
        for output, wanted in zip(found, expected_outputs(model, probe), strict=True):
            torch.testing.assert_close(output, wanted, rtol=0, atol=1e-5)
    assert json.loads(json.loads(extra["metadata.json"])["classes"]) == list(CLASSES)


def test_the_file_is_one_valid_onnx_file_with_names_and_metadata(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    saved = save(tmp_path / "model.safetensors", "messi", "mlp", (5,))
    with caplog.at_level(logging.WARNING):
        exported = export(saved, out=tmp_path / "one.onnx", licence="CC-BY-4.0")
    onnx.checker.check_model(exported.path, full_check=True)
    assert {path.name for path in tmp_path.iterdir()} == {"model.safetensors", "one.onnx", "one.md"}
    session = session_of(exported.path)
    metadata = session.get_modelmeta().custom_metadata_map
    assert (json.loads(metadata["classes"]), metadata["model_license"]) == (list(CLASSES), "CC-BY-4.0")
    assert (metadata["method"], metadata["backbone"], metadata["data"]) == ("messi", "mlp", "two_subsets")
    (given,) = session.get_inputs()
    assert (given.name, given.shape, given.type) == ("features", ["batch", 5], "tensor(float)")
    assert [(out.name, out.shape) for out in session.get_outputs()] == [
        ("probabilities", ["batch", 7]),
        ("experts", ["batch", 6]),
    ]
    assert capfd.readouterr() == ("", "")
    assert caplog.records == []


def test_a_file_that_differs_from_the_model_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = save(tmp_path / "model.safetensors", "erm", "mlp", (5,))
    real = Onnx().open

    def wrong(path: Path) -> Any:
        run = real(path)
        return lambda inputs: [output + 2e-4 for output in run(inputs)]

    monkeypatch.setattr(module.FORMATS["onnx"], "open", wrong)
    with pytest.raises(MessiError, match=r"one\.onnx was not written: its answers would differ .* by 0\.0002"):
        export(saved, out=tmp_path / "one.onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]


def test_weights_that_are_not_numbers_are_refused(tmp_path: Path) -> None:
    saved = save(tmp_path / "model.safetensors", "erm", "mlp", (5,))
    tensors, description = read_tensors(saved)
    next(iter(tensors.values())).fill_(torch.nan)
    write_tensors(saved, tensors, description)
    with pytest.raises(MessiError, match="is not a number"):
        export(saved, out=tmp_path / "one.onnx")
    assert not (tmp_path / "one.onnx").exists()


def test_a_missing_package_and_a_model_of_more_than_2_gib_are_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = save(tmp_path / "model.safetensors", "erm", "mlp", (5,))
    with monkeypatch.context() as patch:
        patch.setattr("messi.serving.export_onnx._LARGEST", 1000)
        with pytest.raises(MessiError, match=r"limited to 2 GiB; export it with --to torch\.$"):
            export(saved, out=tmp_path / "one.onnx")
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(MessiError, match=r"needs onnxscript.*pip install 'messi-dg\[export\]'\.$"):
        export(saved, out=tmp_path / "one.onnx")
    assert export(saved, to="torch", out=tmp_path / "one.pt2").difference < 1e-6


OWN = '''"""A method whose prediction depends on values."""
from messi.algorithms.erm import ERM as Base
from messi.core.batch import Prediction


class Stubborn(Base):
    """Answers differently if the first input is positive."""

    class Config(Base.Config):
        """Nothing new."""

    def predict(self, inputs):
        """Look at a value."""
        prediction = super().predict(inputs)
        return Prediction(-prediction.logits) if float(inputs[0, 0]) > 0 else prediction
'''


def test_a_method_of_the_user_that_cannot_be_exported_is_refused_in_one_sentence(tmp_path: Path) -> None:
    own = tmp_path / "stubborn.py"
    own.write_text(OWN)
    saved = save(tmp_path / "model.safetensors", str(own), "mlp", (5,))
    with pytest.raises(
        MessiError, match=r"^The method 'stubborn' with the backbone 'mlp' cannot be exported \("
    ) as refused:
        export(saved, out=tmp_path / "one.onnx", algorithm=own)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "one.onnx").exists()


def test_an_expectation_is_in_the_metadata(tmp_path: Path) -> None:
    saved = save(tmp_path / "model.safetensors", "erm", "mlp", (5,))
    tensors, description = read_tensors(saved)
    description["expected"] = {"mean": 0.8, "lowest": 0.7, "highest": 0.9, "domains": 4, "seeds": 2}
    write_tensors(saved, tensors, description)
    exported = export(saved, to="torch", out=tmp_path / "one.pt2")
    text = "80.0 %, from 70.0 % to 90.0 %, on 4 held-out domains (2 seeds)"
    extra = {"metadata.json": ""}
    torch.export.load(exported.path, extra_files=extra)
    assert json.loads(extra["metadata.json"])["expected_accuracy"] == text
    assert f"**{text}**" in exported.card.read_text()
