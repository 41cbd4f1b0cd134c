"""The precision of a run: stated or chosen by the hardware, recorded, and the same until the run ends."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from messi.algorithms.common import inference
from messi.algorithms.common.inference import choose_precision
from messi.core.documents import write_document
from messi.core.errors import MessiError
from messi.core.hardware import Hardware
from messi.core.precision import Precision, StatedPrecision
from messi.core.records import EvaluationRecord
from messi.core.rundir import RunDir
from messi.core.tensorfile import tensors_checksum
from messi.data.datasets.rotated_colored_mnist import RotatedColoredMNIST
from messi.engine import build
from messi.engine.config import RunConfig, TrainingConfig
from messi.engine.evaluate import evaluate_run
from messi.engine.run import run, run_until
from messi.evaluation.model import load
from messi.models.encoder import EncoderConfig

CPU, GPU = torch.device("cpu"), torch.device("cuda")
Has = Callable[[bool], None]


@pytest.fixture
def bfloat16(monkeypatch: pytest.MonkeyPatch) -> Has:
    """Return a function that gives this machine a CPU with or without bfloat16."""

    def has(there: bool) -> None:
        for module in (inference, build):
            monkeypatch.setattr(module, "hardware_of", lambda _: Hardware(kind="cpu", bfloat16=there))

    return has


def on_digits(precision: StatedPrecision | None = None) -> RunConfig:
    data = RotatedColoredMNIST(environments=18, num_sources=2, budget=60)
    training = TrainingConfig(steps=4, evaluate_every=2, log_every=1, batch_per_domain=2)
    encoder = EncoderConfig(backbone="test_vit", pretrained=False, image_size=32)
    return RunConfig(
        data=data, target=(data.test_domain,), encoder=encoder, training=training, precision=precision
    ).resolved()


def contents(folder: Path) -> tuple[bytes, str]:
    """Return the records of a run and the checksum of its weights."""
    return (folder / "records.jsonl").read_bytes(), tensors_checksum(load(folder).algorithm.state_dict())


def test_a_run_keeps_the_precision_in_which_it_began(bfloat16: Has, tmp_path: Path) -> None:
    config = on_digits()
    bfloat16(True)
    run(config, out=tmp_path / "whole", device="cpu")
    run_until(config, 2, out=tmp_path / "moved", device="cpu")
    assert RunDir(tmp_path / "moved").read_description().precision == Precision.stated("bfloat16")
    bfloat16(False)
    run(config, out=tmp_path / "moved", device="cpu")
    assert contents(tmp_path / "moved") == contents(tmp_path / "whole")
    assert (tmp_path / "moved/run.json").read_bytes() == (tmp_path / "whole/run.json").read_bytes()
    run(config, out=tmp_path / "old", device="cpu")
    assert RunDir(tmp_path / "old").read_description().precision == Precision.stated("float32")
    assert contents(tmp_path / "old") != contents(tmp_path / "whole")


def test_a_run_of_an_earlier_version_continues_in_float32(bfloat16: Has, tmp_path: Path) -> None:
    config, begun = on_digits(), RunDir(tmp_path / "begun")
    run(config, out=tmp_path / "whole", device="cpu")
    begun.path.mkdir()
    description = RunDir(tmp_path / "whole").read_description()
    write_document(begun.description, dataclasses.replace(description, precision=None))
    bfloat16(True)
    run(config, out=begun.path, device="cpu")
    assert contents(begun.path) == contents(tmp_path / "whole")
    assert begun.read_description().precision is None


def test_a_stated_precision_wins_over_the_hardware_in_training_and_prediction(bfloat16: Has, tmp_path: Path) -> None:
    run(on_digits(), out=tmp_path / "default", device="cpu")
    bfloat16(True)
    stated = run(on_digits("float32"), out=tmp_path / "stated", device="cpu")
    assert contents(stated.path) == contents(tmp_path / "default")
    # The target is the last role of both; its loss depends on the last bit of the logits.
    recorded = next(
        r for r in RunDir(stated.path).read_records() if isinstance(r, EvaluationRecord) and r.role == "target"
    )
    assert evaluate_run(stated.path, device="cpu")[-1].loss == recorded.loss
    assert evaluate_run(stated.path, device="cpu", precision="bfloat16")[-1].loss != recorded.loss
    assert load(stated.path).algorithm.precision == Precision.stated("float32")
    assert load(tmp_path / "default").algorithm.precision == Precision.stated("bfloat16")
    assert load(tmp_path / "default", precision="float32").algorithm.precision == Precision.stated("float32")


def test_emulated_bfloat16_is_announced(bfloat16: Has, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    noted = "The run computes in bfloat16, which this device emulates: expect it to be slow."
    bfloat16(True)
    run_until(on_digits(), 2, out=tmp_path / "run", device="cpu")
    assert noted not in caplog.messages
    bfloat16(False)
    run(on_digits(), out=tmp_path / "run", device="cpu")
    assert noted in caplog.messages


def test_only_a_stated_precision_is_part_of_the_config() -> None:
    default, stated = on_digits(), on_digits("bfloat16")
    assert "precision" not in default.to_dict()
    assert stated.to_dict() == {**default.to_dict(), "precision": "bfloat16"}
    assert RunConfig.from_dict(stated.to_dict()) == stated
    assert len({default.fingerprint(), stated.fingerprint(), on_digits("float32").fingerprint()}) == 3
    with pytest.raises(MessiError, match="precision must be one of 'float32', 'bfloat16', but is 'float16'"):
        on_digits("float16")  # type: ignore[arg-type]


def test_a_run_that_another_process_began_in_another_precision_is_refused(tmp_path: Path) -> None:
    folder = RunDir(tmp_path / "run")
    run_until(on_digits(), 2, out=folder.path, device="cpu")
    description = folder.read_description()
    with pytest.raises(MessiError, match=r"began the run .* in another precision; repeat the command"):
        folder.begin(dataclasses.replace(description, precision=Precision.stated("bfloat16")))


@pytest.mark.parametrize(
    ("encoder", "training", "prediction"),
    [
        (EncoderConfig(backbone="small_cnn"), "bfloat16", "bfloat16"),
        (EncoderConfig(backbone="test_vit"), "bfloat16", "bfloat16"),
        (EncoderConfig(backbone="test_vit", tune="lora:2"), "bfloat16", "bfloat16"),
        (EncoderConfig(backbone="test_vit", tune="head"), "float32", "bfloat16"),
        (EncoderConfig(backbone="tiny_cnn"), "float32", "float32"),
        (EncoderConfig(backbone="residual_mlp"), "float32", "float32"),
        (EncoderConfig(backbone="identity"), "float32", "float32"),
    ],
)
def test_on_a_cpu_bfloat16_is_the_default_of_large_networks(
    bfloat16: Has, encoder: EncoderConfig, training: str, prediction: str
) -> None:
    bfloat16(True)
    chosen = choose_precision(encoder, CPU)
    assert (chosen.training, chosen.prediction) == (training, prediction)
    assert choose_precision(encoder, GPU) == Precision.stated("bfloat16")
    assert choose_precision(encoder, CPU, "float32") == Precision.stated("float32")
    bfloat16(False)
    assert choose_precision(encoder, CPU) == Precision.stated("float32")
    assert choose_precision(encoder, CPU, "bfloat16") == Precision.stated("bfloat16")
