"""Differences to a baseline with missing or failed runs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from messi.experiments.mechanism import Mechanism
from messi.reports.table import Table
from messi.reports.table_formats import markdown
from messi.sweeps.plan import Label
from tests.studies.made_runs import Made, cell_of, made_results

BASELINE = "ERM-MoE"
FAILURE = "a trace\nCUDA out of memory"


def done(labels: Mapping[str, Label]) -> dict[str, Any]:
    """MESSI is better by 1 point with the first seed and by 3 with the second."""
    gain = 0.01 + 0.02 * int(labels["seed"]) if labels["method"] == "MESSI" else 0.0
    return {"result": {"target": {str(labels["target"]): 0.5 + gain}}}


def table_of(folder: Path, made: Made, *, seeds: int = 2) -> Table:
    experiment = Mechanism(seeds=seeds)
    _, table, _ = experiment.report(made_results(folder, experiment, made))
    assert isinstance(table, Table)
    return table


def shown(table: Table, method: str) -> list[float | None]:
    cells = [cell_of(table, column.name, method) for column in table.columns]
    return [cell.ours.mean if cell.ours else None for cell in cells]


def test_n_is_shown_once_and_deviations_are_not_explained(tmp_path: Path) -> None:
    table = table_of(tmp_path, done)
    # Each of four targets has the mean 2 with the standard error 1, so their mean has 0.5 with four degrees of freedom.
    half = 2.776445 * 0.5
    assert shown(table, "MESSI") == pytest.approx([8, 2, 2 - half, 2 + half])
    assert "| MESSI | PACS | 8 | 2.00 | 0.61 | 3.39 |" in markdown(table)
    assert "paired by target and seed" in table.caption
    assert "variance within each target" in table.caption
    for absent in ("±", "In brackets", "Mean over seeds", "Empty cells"):
        assert absent not in table.caption


@pytest.mark.parametrize(("what", "state"), [(FAILURE, "failed"), ("started", "incomplete"), (None, "incomplete")])
@pytest.mark.parametrize("method", ["MESSI", BASELINE])
def test_a_target_without_a_pair_is_explained(tmp_path: Path, method: str, what: str | None, state: str) -> None:
    table = table_of(tmp_path, lambda labels: what if named(labels, method, "photo") else done(labels))
    cells = [cell_of(table, column.name, "MESSI") for column in table.columns]
    assert shown(table, "MESSI") == [6, None, None, None]
    reason = {"MESSI": "CUDA out of memory", BASELINE: f"{BASELINE}: CUDA out of memory"}[method]
    assert {(cell.state, cell.reason) for cell in cells} == {(state, reason if state == "failed" else "")}
    other = cell_of(table, "Difference", "Global-MoE")
    assert other.state == (state if method == BASELINE else "done")


def test_a_target_that_neither_has_run_on_leaves_no_difference(tmp_path: Path) -> None:
    table = table_of(tmp_path, lambda labels: None if labels["target"] == "photo" else done(labels))
    assert shown(table, "MESSI") == [6, None, None, None]


def test_the_rows_own_failure_comes_before_the_baselines(tmp_path: Path) -> None:
    def made(labels: Mapping[str, Label]) -> dict[str, Any] | str:
        return f"no memory for {labels['method']}" if labels["method"] in ("MESSI", BASELINE) else done(labels)

    table = table_of(tmp_path, made)
    assert shown(table, "MESSI") == [0, None, None, None]
    assert cell_of(table, "Difference", "MESSI").reason == "no memory for MESSI"
    assert cell_of(table, "Difference", "Global-MoE").reason == f"{BASELINE}: no memory for {BASELINE}"


def test_one_seed_of_several_targets_has_a_difference_without_an_interval(tmp_path: Path) -> None:
    assert shown(table_of(tmp_path, done, seeds=1), "MESSI") == [4, pytest.approx(1), None, None]


def test_one_pair_is_no_difference(tmp_path: Path) -> None:
    one = ("art_painting", 0)
    table = table_of(tmp_path, lambda labels: done(labels) if (labels["target"], labels["seed"]) == one else None)
    assert shown(table, "MESSI") == [1, None, None, None]


def named(labels: Mapping[str, Label], method: str, target: str) -> bool:
    return (labels["method"], labels["target"]) == (method, target)
