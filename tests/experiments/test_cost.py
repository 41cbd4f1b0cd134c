"""The plan of the cost table, and the table of known timings."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from messi.experiments.common.paper_numbers import TRAINING_TIME
from messi.experiments.cost import COLUMNS, NOT_TIMED, TIMED, Cost
from messi.reports.table import Published, Table
from messi.sweeps.plan import Label
from tests.studies.made_runs import cell_of, made_results

SECONDS = {"ERM": (10.0, 12.0), "MESSI-S-OT": (11.0, 15.0)}
"""Of seeds 0 and 1, for 1,000 steps; any other row takes 20."""


def done(labels: Mapping[str, Label]) -> dict[str, Any]:
    seconds = SECONDS.get(str(labels["method"]), (20.0, 20.0))[int(labels["seed"])]
    timing = {
        "device": "NVIDIA H200",
        "resumed_after_step": 0,
        "steps": 500,
        "seconds": seconds / 2,
        "seconds_with_evaluations": seconds,
        "inference": {"images": 2048, "seconds": 0.5 if labels["method"] == "ERM" else 1.0},
    }
    return {"result": {"target": {"art_painting": 0.9}}, "timing": timing}


def table_of(experiment: Cost, results: Any) -> Table:
    (table,) = experiment.report(results)
    assert isinstance(table, Table)
    return table


def test_the_plan_is_every_row_of_the_papers_table() -> None:
    runs = Cost().runs()
    assert len(runs) == 3 * 7
    backbones = {"resnet50": "ResNet-50", "deit_small_patch16_224": "DeiT-S/16", "deit_tiny_patch16_224": "DeiT-Ti/16"}
    configs = [(str(run.labels["method"]), run.config.resolved()) for run in runs]
    assert {(name, backbones[str(config.encoder.backbone)]) for name, config in configs} == set(TRAINING_TIME)
    for name, config in configs:
        assert (config.data.name, config.target, config.encoder.pretrained) == ("pacs", ("art_painting",), False)
        settings = config.training
        assert (settings.steps, settings.evaluate_every, settings.batch_per_domain) == (1100, 100, 32)
        assert settings.flatness == ("sagm" if "SAGM" in name else "none")


def test_the_small_scale_needs_no_data_and_no_vision_transformer() -> None:
    configs = [run.config.resolved() for run in Cost(scale="small").runs()]
    assert len(configs) == 4
    assert {(config.data.name, config.encoder.backbone) for config in configs} == {("rotated_mnist", "tiny_cnn")}


def test_the_table_contains_the_timings(tmp_path: Path) -> None:
    experiment = Cost(seeds=2)
    table = table_of(experiment, made_results(tmp_path, experiment, done))
    assert [row.heads[0] for row in table.rows] == list(TIMED)
    cells = [cell_of(table, column.name, "MESSI-S-OT", "DeiT-S/16") for column in COLUMNS]
    means = [cell.ours.mean for cell in cells if cell.ours]
    # Seconds per 1,000 steps, each seed relative to ERM of the same seed, images per second, time for them.
    assert means == [pytest.approx(value) for value in (13, (11 / 10 + 15 / 12) / 2, 26, 2048, 2)]
    assert [cell.paper for cell in cells] == [
        Published(1286.26, 28.57),
        Published(12.39),
        None,
        None,
        Published(61.41 / 32.42),
    ]
    assert "NVIDIA H200" in table.caption


def test_runs_that_were_not_timed_failed_or_wait_are_shown(tmp_path: Path) -> None:
    experiment = Cost(seeds=2)

    def made(labels: Mapping[str, Label]) -> dict[str, Any] | str | None:
        files = done(labels)
        if labels["method"] == "SAGM" and labels["seed"] == 1:
            files["timing"]["steps"] = 0
            return files
        return {"GMoE": "no memory", "MESSI-Ti-OT": None}.get(str(labels["method"]), files)

    table = table_of(experiment, made_results(tmp_path, experiment, made))
    column = COLUMNS[0].name
    sagm = cell_of(table, column, "SAGM")
    assert (sagm.state, sagm.reason) == ("failed", NOT_TIMED)
    assert sagm.ours is not None
    assert sagm.ours.n == 1
    assert cell_of(table, column, "GMoE").reason == "no memory"
    waiting = cell_of(table, column, "MESSI-Ti-OT")
    assert (waiting.ours, waiting.state) == (None, "incomplete")


def test_a_damaged_timing_fails_its_row(tmp_path: Path) -> None:
    experiment = Cost(seeds=2)
    results = made_results(tmp_path, experiment, done)
    (run,) = results.where(method="MESSI-S-OT", seed=1)
    (run.path / "timing.json").write_text('{"steps": 50')
    table = table_of(experiment, results)
    cell = cell_of(table, "Rel.", "MESSI-S-OT")
    assert cell.ours is not None
    assert (cell.state, cell.ours.n) == ("failed", 1)
    assert cell.ours.mean == pytest.approx(1.1)
    assert "timing.json is damaged" in cell.reason
    assert cell_of(table, "Rel.", "SAGM").state == "done"
