"""Readings of the paper's open points."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from messi.algorithms.messi import MESSI
from messi.experiments.common.base import Experiment
from messi.experiments.readings import Readings
from messi.experiments.readings_pacs import ReadingsPACS
from messi.reports.table import Table
from messi.sweeps.plan import Label
from tests.studies.made_runs import cell_of, made_results

both = pytest.mark.parametrize(
    ("experiment", "other", "rate"),
    [
        (Readings(digits="mnist"), {"K": 9}, 0.003),
        (ReadingsPACS(), {"target": "sketch"}, 0.0001),
    ],
    ids=["mnist", "pacs"],
)


@both
def test_every_reading_differs_from_the_defaults_in_one_thing(
    experiment: Experiment, other: dict[str, Label], rate: float
) -> None:
    runs = [run for run in experiment.runs() if {"seed": 0, **other}.items() <= run.labels.items()]
    assert len(runs) == 20
    default = MESSI.Config().to_dict()
    changed: dict[str, tuple[list[str], float | None]] = {}
    for run in runs:
        options, own_rate = run.config.algorithm.to_dict(), run.config.training.learning_rate
        different = sorted(key for key in default if options.get(key) != default[key])
        changed[str(run.labels["method"])] = (different, own_rate)
    assert changed["MESSI, defaults"] == ([], None)
    assert changed[f"learning rate {rate:g}"] == ([], rate)
    assert changed["epsilon 1, absolute"] == (["epsilon", "epsilon_scale"], None)
    named = ("ERM", "ERM-MoE", "MESSI, defaults", "epsilon 1, absolute", "no regularisers")
    others = {name: found for name, found in changed.items() if name not in named and "rate" not in name}
    assert all(len(different) == 1 and own is None for different, own in others.values())
    assert len({str(found) + str(runs[i].config.algorithm) for i, found in enumerate(changed.values())}) == 20


def test_the_table_shows_validation_and_target(tmp_path: Path) -> None:
    def made(labels: Mapping[str, Label]) -> dict[str, Any]:
        lead = 0.02 if labels["method"] == "MMD" else 0.0
        found = {"source_val": {"a": 0.6 + lead, "b": 0.7 + lead}, "target": {"rot0-p0.5": 0.5}, "selected_step": 1}
        return {"result": found}

    experiment = Readings(scale="small")
    table, _ = experiment.report(made_results(tmp_path, experiment, made))
    assert isinstance(table, Table)
    validation, target = (cell_of(table, name, "MMD").ours for name in ("validation, K = 9", "target, K = 9"))
    assert validation is not None
    assert target is not None
    assert (round(validation.mean, 6), target.mean) == (67.0, 50.0)


def test_differences_are_to_the_defaults_paired_by_number_of_domains_and_seed(tmp_path: Path) -> None:
    def made(labels: Mapping[str, Label]) -> dict[str, Any]:
        gain = 0.001 * int(labels["K"]) if labels["method"] == "MMD" else 0.0
        return {"result": {"source_val": {"a": 0.1 * int(labels["seed"]) + gain}, "target": {"t": 0.6}}}

    experiment = Readings(digits="mnist", seeds=2)
    _, table = experiment.report(made_results(tmp_path, experiment, made))
    assert isinstance(table, Table)
    assert (table.name, len(list(table.rows))) == ("readings_differences", 19)
    assert "Differences to MESSI, defaults in accuracy on validation data" in table.caption
    assert "paired by number of source domains and seed" in table.caption
    # 0.7, 0.9 and 1.7 points with 7, 9 and 17 domains for every seed: nothing varies within a number of domains.
    cells = [cell_of(table, column.name, "MMD").ours for column in table.columns]
    assert [one.mean for one in cells if one] == pytest.approx([6, 1.1, 1.1, 1.1])


def test_on_pacs_validation_is_the_mean_over_sources_and_targets(tmp_path: Path) -> None:
    def made(labels: Mapping[str, Label]) -> dict[str, Any]:
        held_out = float(str(labels["target"])) / 1000  # 0 and 75 degrees
        found = {"source_val": {"a": 0.6, "b": 0.7 + 2 * held_out}, "target": {"t": 0.5 + held_out}}
        return {"result": {**found, "selected_step": 1}}

    experiment = ReadingsPACS(scale="small")
    table, _ = experiment.report(made_results(tmp_path, experiment, made))
    assert isinstance(table, Table)
    found = [cell.ours.mean if cell.ours else None for cell in table.groups[0][1].cells]
    assert found == pytest.approx([65.0 + 3.75, 50.0, 57.5, 53.75])
