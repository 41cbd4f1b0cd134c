"""The screening design measures every factor without bias, and never looks at the target."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from messi.algorithms.messi import MESSI
from messi.engine.config import TrainingConfig
from messi.experiments.common.plackett_burman import design, runs_of
from messi.experiments.common.recipe_blocks import ROUNDS, Round, method, training
from messi.experiments.recipe_screening import RecipeScreening, effects
from messi.reports.table import Table
from messi.sweeps.plan import Label
from tests.studies.made_runs import cell_of, made_results

rounds = pytest.mark.parametrize("number", ROUNDS)


@rounds
def test_every_factor_is_balanced_and_independent_of_all_others(number: Round) -> None:
    factors = ROUNDS[number]
    signs = np.array([[1 if factor in high else -1 for factor in factors] for high in design(factors)])
    for half in (signs[:12], signs[12:]):
        assert (half.sum(0) == 0).all()
        assert (half.T @ half == 12 * np.eye(11)).all()
    products = np.array([signs[:, i] * signs[:, j] for i in range(11) for j in range(i)])
    assert (products @ signs == 0).all()  # over both halves, no effect contains an interaction of two others


@rounds
def test_without_high_factors_it_is_messi_without_regularisers_and_swad(number: Round) -> None:
    runs = [run for run in RecipeScreening(seeds=1, round=number).runs() if run.labels["method"] == "run 12"]
    assert len(runs) == 6
    expected = MESSI.Config(sparsity_weight=0.0, balance_weight=0.0, diversity_weight=0.0)
    assert {run.config.algorithm for run in runs} == {expected}
    settings = {run.config.resolved().training for run in runs}
    assert {(s.averaging, s.steps, s.learning_rate, s.layer_decay, s.probe_steps) for s in settings} == {
        ("swad", 5000, 3e-5, 1.0, 0)
    }


@rounds
def test_each_factor_changes_something_of_its_own(number: Round) -> None:
    base = TrainingConfig(steps=5000, batch_per_domain=32)

    def configs(*high: str) -> tuple[MESSI.Config, TrainingConfig]:
        sizes = {"batch": 64, "memory": 128, "steps": 5000}
        return method(set(high), **sizes), training(set(high), base, learning_rate=3e-5)

    assert len({configs(), *(configs(factor) for factor in ROUNDS[number])}) == 1 + len(ROUNDS[number])


@pytest.mark.parametrize("study", ["digits", "few_digits"])
def test_the_target_environment_of_the_digits_is_never_used(study: Any) -> None:
    for run in RecipeScreening(study=study, digits="mnist").runs():
        assert "rot0-p0.5" not in (*run.config.target, *run.config.sources)
        assert set(run.config.target).isdisjoint(run.config.sources)
        assert len(run.config.sources) == 8


def test_known_effects_are_found_in_spite_of_an_interaction(tmp_path: Path) -> None:
    def made(labels: Mapping[str, Label]) -> dict[str, Any]:
        high = runs_of(ROUNDS[2], int(labels["seed"]))[str(labels["method"])]
        block = 0.01 * len(str(labels["target"]))
        gain = 0.02 * ("cost" in high) - 0.01 * ("batch" in high) + 0.04 * ({"averaging", "sampling"} <= high)
        return {"result": {"source_val": {"a": 0.9}, "target": {"x": 0.5 + block + gain, "y": 0.4 + block + gain}}}

    experiment = RecipeScreening(seeds=2)
    results = made_results(tmp_path, experiment, made)
    table, _ = experiment.report(results)
    assert isinstance(table, Table)
    found = {factor: cell_of(table, "held out: effect", factor).ours for factor in ROUNDS[2]}
    means = {factor: round(one.mean, 9) for factor, one in found.items() if one}
    # The interaction adds half of its size to both of its factors, as it must, and nothing to the others.
    expected = {"cost": 2.0, "batch": -1.0, "averaging": 2.0, "sampling": 2.0}
    assert means == {factor: expected.get(factor, 0.0) for factor in ROUNDS[2]}
    assert len(effects(results, ROUNDS[2], "cost")) == 12


def test_an_incomplete_block_is_left_out(tmp_path: Path) -> None:
    def made(labels: Mapping[str, Label]) -> dict[str, Any] | None:
        if labels["target"] == "photo+sketch" and labels["method"] == "run 3":
            return None
        return {"result": {"source_val": {"a": 0.9}, "target": {"x": 0.5}}}

    results = made_results(tmp_path, RecipeScreening(seeds=1), made)
    assert effects(results, ROUNDS[2], "cost") == [0.0] * 5
