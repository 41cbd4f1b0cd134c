"""The needs of a plan are checked before anything runs, and errors name the options of a plan."""

from pathlib import Path
from typing import Any

import pytest
import timm
from PIL import Image

from messi.core.errors import MessiError
from messi.data.datasets.common import benchmark
from messi.data.datasets.pacs import PACS
from messi.data.progress import LogProgress
from messi.engine.config import RunConfig
from messi.models.encoder import EncoderConfig
from messi.sweeps.check import check_data_and_weights
from messi.sweeps.plan import Plan, PlannedRun


def needs(data: PACS, encoder: EncoderConfig) -> None:
    """Check a plan of one run."""
    plan = Plan(Path("plan"), [PlannedRun({"seed": 0}, RunConfig(data=data, target=("photo",), encoder=encoder))])
    check_data_and_weights(plan, LogProgress())


@pytest.fixture
def pacs(tmp_path: Path) -> PACS:
    for domain in PACS().manifest.domains:
        folder = tmp_path / "data" / "PACS" / domain / "dog"
        folder.mkdir(parents=True)
        Image.new("RGB", (4, 4)).save(folder / "0.png")
    return PACS(path=str(tmp_path / "data" / "PACS"))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the downloads that were attempted; all of them fail."""
    asked: list[str] = []

    def download(url: str, _path: Path, **_options: Any) -> None:
        asked.append(url)
        raise MessiError(f"{url} could not be downloaded: no route to host; check the network.")

    def create_model(name: str, **options: Any) -> None:
        asked.append(name)
        assert options["pretrained"]
        raise ConnectionError("no route to host")

    monkeypatch.setattr(benchmark, "download", download)
    monkeypatch.setattr(timm, "create_model", create_model)
    return asked


def test_a_plan_without_pretrained_weights_downloads_nothing(pacs: PACS, asked: list[str]) -> None:
    needs(pacs, EncoderConfig(backbone="resnet50", pretrained=False))
    assert asked == []


def test_if_weights_cannot_be_downloaded_the_error_asks_for_a_folder(pacs: PACS, asked: list[str]) -> None:
    with pytest.raises(MessiError) as raised:
        needs(pacs, EncoderConfig(backbone="test_vit"))
    message = str(raised.value)
    assert "no route to host" in message
    assert message.endswith("Use --weights to name a folder that contains test_vit.safetensors or test_vit.pth.")
    assert "--no-pretrained" not in message
    assert asked == ["test_vit"]


def test_a_missing_weight_file_is_reported_before_data_is_downloaded(asked: list[str]) -> None:
    with pytest.raises(MessiError) as raised:
        needs(PACS(), EncoderConfig(backbone="test_vit", weights="nowhere/test_vit.safetensors"))
    assert str(raised.value) == (
        "There is no weights file nowhere/test_vit.safetensors; put the file there. "
        "Use --weights to name a folder that contains test_vit.safetensors or test_vit.pth."
    )
    assert asked == []


def test_if_data_cannot_be_downloaded_the_error_asks_for_its_parent_folder(asked: list[str], tmp_path: Path) -> None:
    advice = "Use --path to name the folder that contains the folder PACS."
    for data, problem in ((PACS(), "could not be downloaded"), (PACS(path=str(tmp_path)), "does not contain PACS")):
        with pytest.raises(MessiError) as raised:
            needs(data, EncoderConfig(backbone="test_vit"))
        message = str(raised.value)
        assert problem in message
        assert message.endswith(advice)
        assert message.count("--path") == 1
    assert "test_vit" not in asked


def test_a_problem_without_advice_is_reported_unchanged(pacs: PACS, tmp_path: Path) -> None:
    (tmp_path / "data" / "PACS" / "photo" / "dog" / "0.png").unlink()
    with pytest.raises(MessiError, match=r"photo/dog contains no images; add images or remove it\.$"):
        needs(pacs, EncoderConfig(backbone="test_vit", pretrained=False))
