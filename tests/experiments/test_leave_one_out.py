"""The plan of the objective ablation, and its table of known results and diagnostics."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from messi.algorithms.messi import MESSI
from messi.experiments.common.paper_numbers import LEAVE_ONE_OUT
from messi.experiments.leave_one_out import VARIANTS, LeaveOneOut
from messi.reports.table import Table
from messi.sweeps.plan import Label
from tests.studies.made_runs import cell_of, made_results

WITHOUT = {"L_ssi": "ssi_weight", "L_sp": "sparsity_weight", "L_bal": "balance_weight", "L_div": "diversity_weight"}


def made(labels: Mapping[str, Label]) -> dict[str, Any]:
    return {
        "result": {"target": {"any": 0.9}},
        "diagnostics": {
            "routing": {"entropy": 0.02, "load_std": 0.3, "template_divergence": 5e-4},
            "similarity": {"mean_off_diagonal": -0.01 if labels["target"] == "photo" else 0.03},
        },
    }


def test_the_plan_matches_the_paper() -> None:
    runs = LeaveOneOut().runs()
    assert len(runs) == 72 == len({run.name for run in runs})
    assert list(VARIANTS) == list(LEAVE_ONE_OUT)
    for name, config in VARIANTS.items():
        left = {WITHOUT[term]: 0.0 for term in name.removeprefix("w/o ").split(",") if name != "MESSI"}
        assert config == MESSI.Config(**left)  # type: ignore[arg-type]


def test_diagnostics_use_the_units_in_their_heads(tmp_path: Path) -> None:
    experiment = LeaveOneOut(seeds=1)
    table, _ = experiment.report(made_results(tmp_path, experiment, made))
    assert isinstance(table, Table)
    assert [column.name for column in table.columns] == list(LEAVE_ONE_OUT["MESSI"])
    expected = dict(zip(LEAVE_ONE_OUT["MESSI"], (90.0, 2.0, 3.0, 2.0, 5.0), strict=True))
    for column, value in expected.items():
        cell = cell_of(table, column, "w/o L_sp")
        assert cell.ours is not None
        assert cell.ours.mean == pytest.approx(value)
        assert cell.paper == LEAVE_ONE_OUT["w/o L_sp"][column]


def test_differences_are_to_messi(tmp_path: Path) -> None:
    experiment = LeaveOneOut(seeds=1)
    _, table = experiment.report(made_results(tmp_path, experiment, made))
    assert isinstance(table, Table)
    assert (table.name, table.title[:21]) == ("leave_one_out_differences", "Differences to MESSI ")
    assert [row.heads[0] for row in table.rows] == [variant for variant in VARIANTS if variant != "MESSI"]


def test_missing_values_are_empty_cells(tmp_path: Path) -> None:
    experiment = LeaveOneOut(scale="small")

    def without(labels: Mapping[str, Label]) -> dict[str, Any]:
        return {**made(labels), "diagnostics": {"routing": {"template_divergence": None}}}

    table, _ = experiment.report(made_results(tmp_path, experiment, without))
    assert isinstance(table, Table)
    for column in ("Routing JS (1e-4)", "Offdiag Cos. (1e-2)"):
        cell = cell_of(table, column, "MESSI")
        assert (cell.ours, cell.state) == (None, "done")
    assert "Empty cells were not measured" in table.caption
    accuracy = cell_of(table, "Rotated MNIST Acc.", "MESSI").ours
    assert accuracy is not None
    assert accuracy.mean == pytest.approx(90)


def test_damaged_diagnostics_fail_their_row_but_not_the_differences(tmp_path: Path) -> None:
    experiment = LeaveOneOut(seeds=2)
    results = made_results(tmp_path, experiment, made)
    (run,) = results.where(method="w/o L_sp", target="photo", seed=1)
    (run.path / "diagnostics.json").write_text('{"routing": {')
    table, differences = experiment.report(results)
    assert isinstance(table, Table)
    assert isinstance(differences, Table)
    for column in table.columns:
        cell = cell_of(table, column.name, "w/o L_sp")
        assert (cell.state, cell.ours and cell.ours.n) == ("failed", 1)
        assert f"{run.path / 'diagnostics.json'} is damaged" in cell.reason
        assert cell_of(table, column.name, "w/o L_div").state == "done"
    pairs = cell_of(differences, "n pairs", "w/o L_sp").ours
    assert pairs is not None
    assert pairs.mean == 8
