"""The choice between the base and the combination: arms that differ in one thing, on source domains alone."""

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from messi.algorithms.erm import ERM
from messi.algorithms.messi import MESSI
from messi.experiments.recipe_choice import COMBINATIONS, RecipeChoice
from messi.experiments.recipe_screening import RecipeScreening
from messi.reports.table import Table
from messi.sweeps.plan import Label
from tests.studies.made_runs import cell_of, made_results

studies = pytest.mark.parametrize("study", ["pacs", "digits", "few_digits"])


@studies
def test_arms_differ_in_one_thing(study: Any) -> None:
    runs = {tuple(run.labels.values()): run.config for run in RecipeChoice(study=study, digits="mnist").runs()}
    assert {seed for _, _, seed in runs} == {1, 2}
    assert len(runs) == 2 * 4 * len(RecipeChoice(study=study).blocks)
    for (arm, target, seed), config in runs.items():
        whole, _, part = str(arm).partition(", ")
        base = runs[whole, target, seed]
        assert config.training == base.training
        assert (config.target, config.sources, config.encoder, config.data) == (
            *(base.target, base.sources),
            *(base.encoder, base.data),
        )
        assert isinstance(config.algorithm, ERM.Config if part == "ERM" else MESSI.Config)
        assert part in ("", "ERM")
        if "rot0-p0.5" in (*config.target, *config.sources):
            pytest.fail("the target environment of the digits is used")


@studies
def test_the_base_is_the_run_of_the_screening_without_high_factors(study: Any) -> None:
    screened = RecipeScreening(study=study, digits="mnist", seeds=1).runs()
    low = {
        str(run.labels["target"]): dataclasses.replace(run.config, seed=1)
        for run in screened
        if run.labels["method"] == "run 12"
    }
    chosen = [run for run in RecipeChoice(study=study, digits="mnist").runs() if run.labels["seed"] == 1]
    assert {str(run.labels["target"]): run.config for run in chosen if run.labels["method"] == "base"} == low


def test_differences_are_paired_by_block_and_seed(tmp_path: Path) -> None:
    gains = {"base": 0.02, "base, ERM": 0.01}

    def made(labels: Mapping[str, Label]) -> dict[str, Any]:
        arm, seed = str(labels["method"]), int(labels["seed"])
        block = 0.001 * sum(map(ord, str(labels["target"]))) % 0.1
        gain = gains.get(arm, 0.03 + (0.01 * seed if arm == "combination" else 0.0))
        return {"result": {"source_val": {"a": 0.9}, "target": {"x": 0.5 + block + gain, "y": 0.4 + block + gain}}}

    experiment = RecipeChoice()
    _, table = experiment.report(made_results(tmp_path, experiment, made))
    assert isinstance(table, Table)

    def shown(effect: str) -> list[float]:
        row = next(row for row in table.rows if row.heads[0] == effect)
        return [cell.ours.mean for cell in row.cells[:3] if cell.ours]

    assert shown("experts and alignment, base") == pytest.approx([1, 0, 12], abs=1e-9)
    # Better by 2 points with seed 1 and by 3 with seed 2, on each of six blocks.
    assert shown("settings of MESSI and of training") == pytest.approx([2.5, math.sqrt(0.25 * 12 / 11 / 12), 12])
    assert cell_of(table, "n pairs", "experts and alignment, base", "base minus base, ERM").ours


def test_every_combination_consists_of_factors_of_the_screening() -> None:
    for combination in COMBINATIONS.values():
        assert combination <= RecipeScreening().factors.keys()
