"""The confirmation of the recipe: any data sets, each domain held out, effects on every set and over sets."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import stdtrit

from messi.core.errors import MessiError
from messi.engine.config import RunConfig, TrainingConfig
from messi.engine.recipes import recipe_of
from messi.experiments.recipe_confirmation import ALL, MEAN, RecipeConfirmation
from messi.reports.table import Table
from messi.studies.common.methods import with_method
from messi.sweeps.plan import Label
from tests.studies.made_runs import cell_of, made_results

EFFECT = ("alignment", "MESSI, recipe minus recipe without alignment")


@pytest.fixture
def sets(tmp_path: Path) -> tuple[str, str]:
    for name, domains in (("one", "abc"), ("two", "xy")):
        number = 8 * len(domains)
        inputs, labels = np.eye(number, 300), np.tile([0, 1], number // 2)
        np.savez(tmp_path / f"{name}.npz", inputs=inputs, labels=labels, domains=np.repeat(list(domains), 8))
    return str(tmp_path / "one.npz"), str(tmp_path / "two.npz")


def test_features_are_trained_as_users_train_them(sets: tuple[str, str]) -> None:
    """Every arm that is a recipe has the config of 'messi train', so that other studies can use the same runs."""
    runs = RecipeConfirmation(data=sets, seeds=2).runs()
    assert len(runs) == 2 * (3 + 2) * 5
    held_out = {(run.labels["data"], run.labels["target"]) for run in runs}
    assert held_out == {("one", "a"), ("one", "b"), ("one", "c"), ("two", "x"), ("two", "y")}
    names = {"ERM": "erm", "ERM + averaging": "erm_swad", "MESSI, paper": "paper", "MESSI, recipe": "messi_swad"}
    for run in runs:
        arm, config = str(run.labels["method"]), run.config.resolved()
        assert config.encoder.backbone == "residual_mlp"
        if arm in names:
            assert recipe_of(config) == names[arm]
            task = RunConfig(data=config.data, target=config.target, training=TrainingConfig(), seed=config.seed)
            method = "messi" if arm == "MESSI, paper" else names[arm]
            assert run.config.fingerprint() == with_method(method, task).fingerprint()


def test_images_have_a_pretrained_network_and_fifty_evaluations(
    make_folder: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    arms: Any = ("ERM + averaging", "GMoE + averaging")
    runs = RecipeConfirmation(data=(str(make_folder(images=2)),), arms=arms, steps=1000, seeds=1).runs()
    assert [run.labels["target"] for run in runs[::2]] == ["paint", "photo", "sketch"]
    assert {run.config.resolved().encoder.backbone for run in runs} == {"deit_tiny_patch16_224"}
    assert {(run.config.training.steps, run.config.training.evaluate_every) for run in runs} == {(1000, 20)}
    assert capsys.readouterr() == ("", "")


def test_an_arm_that_needs_a_transformer_is_refused_on_features(sets: tuple[str, str]) -> None:
    with pytest.raises(MessiError, match=r"^The arm 'GMoE \+ averaging' requires a vision transformer, .*\.$"):
        RecipeConfirmation(data=sets, arms=("GMoE + averaging",)).runs()


def made(labels: Mapping[str, Label]) -> dict[str, Any]:
    """The alignment gives 1 to 3 points on the domains of one set and 6 on those of the other; seeds cancel."""
    gain = {"a": 0.01, "b": 0.02, "c": 0.03}.get(str(labels["target"]), 0.06)
    level = 0.5 + 0.01 * int(labels["seed"]) + (gain if labels["method"] == "MESSI, recipe" else 0.0)
    return {"result": {"source_val": {"s": 0.9}, "target": {str(labels["target"]): level}}, "diagnostics": {}}


def test_effects_are_shown_on_every_set_and_over_sets(sets: tuple[str, str], tmp_path: Path) -> None:
    study = RecipeConfirmation(data=sets)
    accuracies, differences, _ = study.report(made_results(tmp_path, study, made))
    assert isinstance(accuracies, Table)
    assert isinstance(differences, Table)

    def accuracy(*heads: str) -> float | None:
        found = cell_of(accuracies, "MESSI, recipe", *heads).ours
        return None if found is None else round(found.mean, 6)

    assert [accuracy("one", "b"), accuracy("one", MEAN), accuracy("two", MEAN)] == [53.0, 53.0, 57.0]
    assert accuracy(ALL, MEAN) == 55.0, "sets count equally, not domains"

    def shown(data: str) -> list[float]:
        cells = [cell_of(differences, column, *EFFECT, data).ours for column in ("n pairs", "Difference", "97.5 %")]
        return [cell.mean for cell in cells if cell]

    assert shown("one") == pytest.approx([9, 2, 2])
    assert shown("two") == pytest.approx([6, 6, 6])
    half = float(stdtrit(1, 0.975)) * math.sqrt(8) / math.sqrt(2)
    assert shown(ALL) == pytest.approx([2, 4, 4 + half]), "the interval is over the two sets"
    assert "looked at" not in accuracies.caption


def test_nothing_is_averaged_over_sets_while_one_is_missing(sets: tuple[str, str], tmp_path: Path) -> None:
    study = RecipeConfirmation(data=sets)
    results = made_results(tmp_path, study, lambda labels: None if labels["data"] == "two" else made(labels))
    accuracies, differences, _ = study.report(results)
    assert isinstance(accuracies, Table)
    assert isinstance(differences, Table)
    assert cell_of(accuracies, "MESSI, recipe", "one", MEAN).ours
    assert cell_of(accuracies, "MESSI, recipe", ALL, MEAN).ours is None
    assert cell_of(differences, "Difference", *EFFECT, ALL).ours is None
