"""Recipes on features and above frozen encoders: pairs of domains, arms that are recipes, pooled differences."""

import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from messi.data.datasets.arrays import Arrays
from messi.engine.recipes import RECIPES, recipe_of
from messi.experiments.recipe_heads import ALL, BASELINE, RecipeHeads, ring
from messi.reports.table import Table
from messi.sweeps.plan import Label
from tests.studies.made_runs import made_results

DOMAINS = ("a", "b", "c")


@pytest.fixture
def sets(tmp_path: Path) -> tuple[str, str]:
    for name in ("one", "two"):
        domains, labels = np.repeat(DOMAINS, 8), np.tile([0, 1], 12)
        np.savez(tmp_path / f"{name}.npz", inputs=np.eye(24), labels=labels, domains=domains)
    return str(tmp_path / "one.npz"), str(tmp_path / "two.npz")


@pytest.mark.parametrize("number", [3, 4, 6])
def test_every_domain_is_held_out_twice_with_two_others(number: int) -> None:
    blocks = ring([str(place) for place in range(number)])
    assert len(set(blocks)) == len(blocks) == number
    assert Counter(name for block in blocks for name in block) == {str(place): 2 for place in range(number)}
    assert ring(["a", "b"]) == [("a", "b")]


def test_every_arm_is_a_recipe_on_the_same_data(sets: tuple[str, str]) -> None:
    runs = RecipeHeads(data=sets, seeds=2).runs()
    assert len(runs) == 2 * len(sets) * 3 * len(RECIPES)
    for run in runs:
        assert recipe_of(run.config.resolved()) == run.labels["method"]
        assert run.config.target == tuple(str(run.labels["target"]).split("+"))
        assert isinstance(run.config.data, Arrays)
        assert Path(run.config.data.path).name == f"{run.labels['data']}.npz"


def test_images_have_a_frozen_encoder_and_rates_are_tried_with_every_recipe(make_folder: Any) -> None:
    study = RecipeHeads(data=(str(make_folder()),), learning_rates=(1e-3, 1e-2), seeds=1)
    tried = {(run.labels["method"], run.config.training.learning_rate) for run in study.runs()}
    assert tried == {(f"{name} learning_rate={rate:g}", rate) for name in RECIPES for rate in (1e-3, 1e-2)}
    assert {run.config.encoder.tune for run in study.runs()} == {"head"}
    assert {run.config.training.averaging for run in study.runs()} == {"none", "swad"}


def table(folder: Path, study: RecipeHeads, made: Any) -> Table:
    (found,) = (
        one for one in study.report(made_results(folder, study, made)) if one.name == "recipe_heads_differences"
    )
    assert isinstance(found, Table)
    return found


def test_differences_are_paired_and_their_errors_are_over_blocks_or_sets(sets: tuple[str, str], tmp_path: Path) -> None:
    """ERM is 2, 4 and 6 points above the baseline on the blocks of one set, and 10 above it on those of the other."""
    leads = {("one", "a+b"): 0.02, ("one", "b+c"): 0.04, ("one", "a+c"): 0.06}

    def made(labels: Mapping[str, Label]) -> dict[str, Any]:
        data, target = str(labels["data"]), str(labels["target"])
        lead = leads.get((data, target), 0.1) if labels["method"] == "erm" else 0.0
        return {"result": {"target": dict.fromkeys(target.split("+"), 0.5 + lead), "source_val": {"x": 0.9}}}

    found = table(tmp_path, RecipeHeads(data=sets, seeds=1), made)
    names = ("mean, held out", "s.e., held out", "n, held out")

    def shown(data: str) -> list[float]:
        (row,) = (row for row in found.rows if row.heads == ("recipe", f"erm minus {BASELINE}", data))
        return [row.cells[place].ours.mean for place in range(len(names))]  # type: ignore[union-attr]

    assert [column.name for column in found.columns[:3]] == list(names)
    assert shown("one") == pytest.approx([4, 2 / math.sqrt(3), 3])
    assert shown("two") == pytest.approx([10, 0, 3])
    assert shown(ALL) == pytest.approx([7, 3, 2]), "the standard error is over the two sets"


def test_a_learning_rate_is_compared_over_all_recipes(sets: tuple[str, str], tmp_path: Path) -> None:
    gains = dict(zip(RECIPES, (0.01, 0.02, 0.03, 0.06), strict=True))

    def made(labels: Mapping[str, Label]) -> dict[str, Any]:
        name, rate = str(labels["method"]).split(" learning_rate=")
        level = 0.5 + (gains[name] if rate == "0.01" else 0)
        return {"result": {"target": dict.fromkeys(DOMAINS[:2], level), "source_val": {"x": 0.9}}}

    study = RecipeHeads(data=sets[:1], learning_rates=(1e-3, 1e-2), seeds=1)
    found = table(tmp_path, study, made)
    first = next(iter(found.rows))
    assert first.heads[:2] == ("learning rate", "0.01 minus 0.001")
    assert [cell.ours.mean for cell in first.cells[:3:2] if cell.ours] == pytest.approx([3, 12])
