"""The plan of the iWildCam table, its first cameras, and the table of known results."""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from messi.cli.main import main
from messi.data.datasets.iwildcam import IWildCam as IWildCamData
from messi.data.progress import LogProgress
from messi.experiments.iwildcam import IWildCam
from messi.reports.table import Published, Table
from messi.sweeps.plan import Label
from tests.studies.made_runs import cell_of, made_results

CAMERAS = {"train": (2, 10, 30, 40), "id_val": (2, 30), "id_test": (10,), "val": (4, 5), "test": (1, 200)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a table of two images for every camera of every part, a dark one and a bright one."""
    (tmp_path / "data" / "train").mkdir(parents=True)
    rows = []
    for part, camera in ((part, camera) for part, cameras in CAMERAS.items() for camera in cameras):
        for label, brightness in enumerate((60, 180)):
            name = f"{part}-{camera}-{label}.jpg"
            Image.new("L", (64, 48), brightness + camera % 7).save(tmp_path / "data" / "train" / name)
            rows.append(f"{part},{name},{label},{camera},1,2013")
    header = "split,filename,y,location_remapped,sequence_remapped,datetime"
    (tmp_path / "data" / "metadata.csv").write_text("\n".join([header, *rows]) + "\n")
    return tmp_path / "data"


def test_the_plan_matches_the_paper() -> None:
    runs = IWildCam().runs()
    assert len(runs) == 3 * 3
    for run in runs:
        config = run.config.resolved()
        settings = config.training
        assert (config.encoder.backbone, config.encoder.pretrained) == ("deit_small_patch16_224", True)
        assert (settings.steps, settings.learning_rate, settings.weight_decay) == (150_000, 3e-5, 0.0)
        assert (settings.domains_per_batch, settings.batch_per_domain) == (4, 8)
        assert (settings.split, settings.selection, config.target) == ("official", "unseen_val_macro_f1", ())
        assert config.algorithm.to_dict()["num_experts"] == 6
    methods = {str(run.labels["method"]): run.config.algorithm.name for run in runs}
    assert methods == {"OMoE": "omoe", "GMoE": "gmoe", "MESSI": "messi"}


def test_first_cameras_are_those_of_every_part(folder: Path) -> None:
    listing = IWildCamData(path=str(folder), cameras=1).listing(LogProgress())
    kept = sorted({Path(file).stem.rpartition("-")[0] for file in listing.files})
    assert kept == ["id_val-2", "test-1", "train-2", "val-4"]
    assert len(listing) == 8
    assert len(IWildCamData(path=str(folder), cameras=300).listing(LogProgress())) == 22


@pytest.mark.nightly
def test_the_small_scale_learns_from_any_camera(folder: Path, tmp_path: Path) -> None:
    """It takes 40 seconds on 2 CPU cores."""
    options = ("--scale", "small", "--path", str(folder), "--devices", "cpu", "--jobs", "2")
    assert main(["reproduce", "iwildcam", *options, "--out", str(tmp_path / "plan")]) == 0
    with (tmp_path / "plan" / "tables" / "iwildcam.csv").open() as file:
        found = {(row["Method"], row["column"]): float(row["mean"]) for row in csv.DictReader(file)}
    assert {method for method, _ in found} == {"OMoE", "GMoE", "MESSI"}
    assert {mean for (_, column), mean in found.items() if column == "OOD Test F1"} == {100}


def test_the_small_scale_names_missing_data(tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "iwildcam", "--scale", "small", "--out", str(tmp_path / "out")]) == 2
    told = " ".join(capsys.readouterr().err.split())
    place = home / "data" / "iwildcam_v2.0"
    assert f"{place} does not contain iWildCam (WILDS): it must contain metadata.csv and the folder train" in told
    assert not (tmp_path / "out").exists()


def test_the_table_holds_macro_f1_and_accuracy_of_every_split(tmp_path: Path) -> None:
    roles = ("unseen_val", "target", "source_val", "source_test")

    def made(labels: Mapping[str, Label]) -> dict[str, Any] | str | None:
        if labels["method"] != "MESSI":
            return {"OMoE": "started", "GMoE": "a trace\nno memory"}[str(labels["method"])]
        gain = 0.02 * int(labels["seed"])
        values = {
            role: {"count": 4, "macro_f1": 0.1 * n + gain, "accuracy": 0.1 * n + 0.5} for n, role in enumerate(roles, 1)
        }
        return {"result": {"roles": values}}

    experiment = IWildCam(seeds=2)
    (table,) = experiment.report(made_results(tmp_path, experiment, made))
    assert isinstance(table, Table)
    for number, split in enumerate(("OOD Val", "OOD Test", "ID Val", "ID Test"), 1):
        cells = [cell_of(table, f"{split} {what}", "MESSI") for what in ("F1", "acc.")]
        assert [cell.ours.mean for cell in cells if cell.ours] == [
            pytest.approx(10 * number + 1),
            pytest.approx(10 * number + 50),
        ]
        assert cells[1].paper is None
    assert cell_of(table, "OOD Test F1", "MESSI").paper == Published(33.16)
    assert cell_of(table, "OOD Test F1", "OMoE").state == "incomplete"
    assert cell_of(table, "OOD Test F1", "GMoE").reason == "no memory"
    assert "selected by macro F1 on OOD Val, as in WILDS" in table.caption
    assert "Selection: unseen_val_macro_f1." in table.caption
