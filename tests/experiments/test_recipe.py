"""The arms of the recipe study differ only in what their names say, and known effects are found."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from messi.algorithms.common.base import ALGORITHMS
from messi.algorithms.coral import CORAL
from messi.algorithms.erm import ERM
from messi.algorithms.gmoe import GMoE
from messi.algorithms.messi import MESSI
from messi.core.config import flatten
from messi.core.errors import MessiError
from messi.data.datasets.common.digits import EMBEDDED
from messi.engine.config import TrainingConfig
from messi.engine.recipes import RECIPES
from messi.experiments.common.growth import BUDGET
from messi.experiments.common.recipe_arms import RECIPE
from messi.experiments.recipe import NUMBERS, Recipe
from messi.reports.table import Table
from messi.sweeps.plan import Label
from tests.studies.made_runs import cell_of, made_results

STUDIES: dict[str, dict[str, Any]] = {
    "pacs": {"study": "pacs"},
    "digits": {"study": "digits", "digits": "mnist"},
    "few_digits": {"study": "few_digits"},
    "small": {"scale": "small"},
}
GAINS = {
    "ERM": 0.0,
    "ERM + averaging": 0.02,
    "CORAL + averaging": 0.0,
    "GMoE + averaging": 0.0,
    "recipe without alignment": 0.01,
    "MESSI, paper": -0.03,
    "MESSI, recipe": 0.05,
}


def flat_configs(experiment: Recipe) -> dict[str, list[dict[str, str]]]:
    """Return the resolved settings of the runs of every arm, in the order of seeds and targets."""
    found: dict[str, list[dict[str, str]]] = {}
    for run in experiment.runs():
        found.setdefault(str(run.labels["method"]), []).append(flatten(run.config.resolved().to_dict()))
    return found


def differing(first: list[dict[str, str]], second: list[dict[str, str]]) -> set[str]:
    assert len(first) == len(second)
    pairs = zip(first, second, strict=True)
    return {key for one, other in pairs for key in one.keys() | other.keys() if one.get(key) != other.get(key)}


@pytest.mark.parametrize("study", STUDIES)
def test_arms_differ_only_in_what_their_names_say(study: str) -> None:
    found = flat_configs(Recipe(**STUDIES[study]))
    recipe = RECIPES[RECIPE]
    own = {f"algorithm.{field.name}" for field in dataclasses.fields(MESSI.Config)}
    plain = TrainingConfig()
    stated = {
        f"training.{field.name}"
        for field in dataclasses.fields(TrainingConfig)
        if getattr(recipe.training, field.name) != getattr(plain, field.name)
    }
    assert stated
    expected = {
        ("ERM", "ERM + averaging"): stated,
        ("recipe without alignment", "MESSI, recipe"): {"algorithm.ssi_weight"},
        ("ERM + averaging", "MESSI, recipe"): {"algorithm.name", *own},
        ("ERM", "MESSI, paper"): {"algorithm.name", *own},
        ("ERM + averaging", "CORAL + averaging"): {"algorithm.name", "algorithm.gamma"},
        ("MESSI, paper", "MESSI, recipe"): {
            *stated,
            *(key for key in own if getattr(MESSI.Config(), key[10:]) != getattr(recipe.algorithm, key[10:])),
        },
    }
    for (one, other), settings in expected.items():
        found_settings = differing(found[one], found[other])
        assert found_settings, (one, other)
        assert found_settings <= settings, (one, other)
    assert ("GMoE + averaging" in found) == (study == "pacs")  # it requires a transformer


def test_the_methods_are_the_plain_ones_and_the_recipe() -> None:
    configs = {run.labels["method"]: run.config for run in Recipe(seeds=1).runs()}
    assert {str(name): config.algorithm for name, config in configs.items()} == {
        "ERM": ERM.Config(),
        "ERM + averaging": ERM.Config(),
        "CORAL + averaging": CORAL.Config(),
        "GMoE + averaging": GMoE.Config(),
        "recipe without alignment": ALGORITHMS.config("messi")(
            **{name: value for name, value in vars(RECIPES[RECIPE].algorithm).items() if name != "ssi_weight"},
            ssi_weight=0.0,
        ),
        "MESSI, paper": MESSI.Config(),
        "MESSI, recipe": RECIPES[RECIPE].algorithm,
    }


def test_every_study_tests_its_real_target() -> None:
    pacs = [run.config for run in Recipe().runs()]
    assert len(pacs) == 3 * 4 * 7
    assert {config.target for config in pacs} == {("art_painting",), ("cartoon",), ("photo",), ("sketch",)}
    assert {(c.resolved().training.steps, c.training.evaluate_every) for c in pacs} == {(5000, 100)}
    digits = [run.config for run in Recipe(study="digits", digits="mnist").runs()]
    assert len(digits) == 3 * 8 * 6
    assert {config.target for config in digits} == {("rot0-p0.5",)}
    numbers = [
        c.data.to_dict()["num_sources"] for c in digits if c.seed == 0 and c.algorithm == RECIPES[RECIPE].algorithm
    ]
    assert numbers == [3, 5, 7, 9, 11, 13, 15, 17] == list(NUMBERS)
    assert {c.data.to_dict()["budget"] for c in digits} == {BUDGET}
    few = [run.config for run in Recipe(study="few_digits").runs()]
    assert len(few) == 3 * 6
    assert {(c.data.to_dict()["digits"], c.training.steps, c.training.evaluate_every) for c in few} == {
        (EMBEDDED, 300, 10)
    }


def test_impossible_options_get_one_sentence() -> None:
    with pytest.raises(MessiError, match=r"^The arm 'GMoE \+ averaging' requires a vision transformer"):
        Recipe(study="digits", arms=("GMoE + averaging",))
    with pytest.raises(MessiError, match="Each value of arms must be one of 'ERM'"):
        Recipe(arms=("ERM+averaging",))  # type: ignore[arg-type]


def made(labels: Mapping[str, Label]) -> dict[str, Any]:
    """Every arm has its gain; targets and seeds add offsets, which pairs cancel."""
    offset = 0.001 * len(str(labels["target"])) + 0.01 * int(labels["seed"])
    target = 0.5 + offset + GAINS[str(labels["method"])]
    if labels["target"] == "K = 17" and labels["method"] == "MESSI, recipe":
        target -= 0.08
    return {"result": {"source_val": {"a": 0.9}, "target": {"x": target}}, "diagnostics": {}}


def test_known_effects_are_found(tmp_path: Path) -> None:
    experiment = Recipe()
    accuracies, differences, learned = experiment.report(made_results(tmp_path, experiment, made))
    assert isinstance(accuracies, Table)
    assert isinstance(differences, Table)
    assert isinstance(learned, Table)
    assert "Earlier trials had already looked at these targets" in accuracies.caption
    mean = cell_of(accuracies, "Mean", "MESSI, recipe").ours
    assert mean
    assert mean.mean == pytest.approx(100 * (0.55 + 0.01 + 0.001 * (12 + 7 + 5 + 6) / 4))
    assert mean.spread == pytest.approx(1.0)
    expected = {
        "averaging": 2.0,
        "experts": -1.0,
        "alignment": 4.0,
        "experts and alignment": 3.0,
        "everything": 5.0,
        "recipe instead of paper": 8.0,
    }
    assert [row.heads[0] for row in differences.rows] == list(expected)
    for effect, value in expected.items():
        cells = [cell_of(differences, column, effect).ours for column in ("n pairs", "Difference", "2.5 %", "97.5 %")]
        assert [cell and cell.mean for cell in cells] == pytest.approx([12, value, value, value]), effect


def test_digits_compare_the_recipe_with_erm_for_every_number_of_domains(tmp_path: Path) -> None:
    experiment = Recipe(study="digits", digits="mnist")
    _, differences, learned = experiment.report(made_results(tmp_path, experiment, made))
    assert isinstance(differences, Table)
    assert isinstance(learned, Table)
    found = {row.heads: row.cells[1].ours for row in differences.rows}
    means = {heads[0]: round(one.mean, 9) for heads, one in found.items() if one and heads[0].startswith("everything")}
    expected = {f"everything, K = {number}": 5.0 if number < 17 else -3.0 for number in NUMBERS}
    assert means == {"everything": 4.0, **expected}
    assert {heads[1] for heads in found if heads[0].startswith("everything")} == {"MESSI, recipe minus ERM"}
    assert "paired by number of source domains and seed" in differences.caption
    assert learned.caption.startswith("What the models have learned. Mean over the numbers of source domains")


def test_only_chosen_arms_are_compared(tmp_path: Path) -> None:
    arms: Any = ("ERM + averaging", "MESSI, recipe")
    few = Recipe(study="few_digits", arms=arms)
    accuracies, differences, _ = few.report(made_results(tmp_path, few, made))
    assert isinstance(accuracies, Table)
    assert isinstance(differences, Table)
    assert [row.heads for row in accuracies.rows] == [(arm,) for arm in arms]
    assert [row.heads[0] for row in differences.rows] == ["experts and alignment"]
