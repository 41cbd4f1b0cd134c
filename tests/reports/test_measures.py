"""The list of measures, and the table of them on a page."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from messi.reports.measures import measures_table
from messi.reports.runs import FinishedRun, read_run, run_labels
from messi.reports.table import Table

from .documents import document
from .helpers import Sample


def run_of(folder: Path, diagnostics: dict[str, Any]) -> FinishedRun:
    return read_run(Sample(diagnostics=diagnostics, images=False).write(folder / "run"))


def table_of(runs: Sequence[FinishedRun]) -> Table:
    table = measures_table(runs, run_labels(runs))
    assert table is not None
    return table


def test_measures_that_no_run_has_have_no_column(tmp_path: Path) -> None:
    erm = {"calibration": {"source_val": {"ece": 0.02, "bins": []}}, "probe": {"accuracy": None, "chance": 0.5}}
    table = table_of([run_of(tmp_path / "a", erm), run_of(tmp_path / "b", {})])
    assert [column.name for column in table.columns] == ["ECE, sources %", "Chance %"]
    assert [[text.mean for text in table.texts(row)] for row in table.rows] == [["2.0", "50.0"]]


def test_measures_state_units_limits_and_sample_sizes(tmp_path: Path) -> None:
    found = document(experts=6)
    found["similarity"]["mean_off_diagonal"] = -0.00053925
    found["calibration"]["target"]["bins"] = [{"confidence": 0.6, "accuracy": 0.5, "count": 25}]
    found["examples"] = 40
    table = table_of([run_of(tmp_path, found)])
    meanings = {column.name: column.meaning for column in table.columns}
    cells = dict(zip(meanings, table.texts(next(table.rows)), strict=True))
    assert (cells["Worst domain %"].mean, cells["Worst domain %"].note) == ("55.0", "(art)")
    assert cells["Expert cosine"].mean == "\u22120.000539"
    assert "in nats" in meanings["Routing entropy"]
    assert "log 6 = 1.79" in meanings["Routing entropy"]
    assert "less than 1 % of" in meanings["Dead experts %"]
    # The records have 40 examples of the sources and 40 of the target.
    assert meanings["ECE, target %"].endswith("Measured on n = 25 of 40.")
    assert meanings["Dead experts %"].endswith("Measured on n = 40.")
    assert meanings["Energy distance"].endswith("Measured on n = 30 of 40.")
    assert meanings["Domain probe %"].endswith("Measured on n = 20 of 40.")
    assert "n =" not in meanings["Worst domain %"]


def test_different_sample_sizes_are_shown_as_ranges(tmp_path: Path) -> None:
    runs = []
    for number in (25, 40):
        found = document()
        found["calibration"]["target"]["bins"] = [{"confidence": 0.6, "accuracy": 0.5, "count": number}]
        runs.append(run_of(tmp_path / f"{number}", found))
    assert {column.name: column.meaning for column in table_of(runs).columns}["ECE, target %"].endswith(
        "Measured on n = 25 to 40 of 40."
    )


def test_runs_without_diagnostics_have_no_table(tmp_path: Path) -> None:
    run = run_of(tmp_path, {})
    assert measures_table([run], ["messi"]) is None
