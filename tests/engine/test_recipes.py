"""A recipe becomes a config, and a config knows its recipe."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

import messi
from messi.algorithms.common.base import ALGORITHMS
from messi.algorithms.coral import CORAL
from messi.algorithms.erm import ERM
from messi.algorithms.messi import MESSI
from messi.core.errors import MessiError
from messi.data.datasets.arrays import Arrays
from messi.data.datasets.common.base import DataConfig
from messi.data.datasets.feature_table import FeatureTable
from messi.data.datasets.office_home import OfficeHome
from messi.data.datasets.pacs import PACS
from messi.data.datasets.rotated_colored_mnist import RotatedColoredMNIST
from messi.data.datasets.two_subsets import TwoSubsets
from messi.engine import recipes
from messi.engine.average_runs import average_runs
from messi.engine.config import RunConfig, TrainingConfig
from messi.engine.recipes import DEFAULTS, RECIPES, Recipe, default_recipe, recipe, recipe_of
from messi.engine.run import run
from messi.models.encoder import EncoderConfig


def test_the_paper_and_the_baseline_are_the_plain_methods() -> None:
    for name, algorithm in (("paper", MESSI.Config()), ("erm", ERM.Config())):
        expected = RunConfig(data=PACS(), target=("sketch",), algorithm=algorithm)
        assert recipe(name, data=PACS(), target=("sketch",)) == expected
        assert RECIPES[name].settings == {}
    assert messi.recipe is recipe


@pytest.mark.parametrize(
    ("data", "encoder", "name"),
    [
        (PACS(), {}, "messi_swad"),
        (PACS(), {"tune": "lora:8"}, "messi_swad"),
        (PACS(), {"tune": "last:2"}, "messi_swad"),
        (PACS(), {"pretrained": False, "weights": "deit.safetensors"}, "messi_swad"),
        (PACS(), {"tune": "head"}, "erm_swad"),
        (PACS(), {"pretrained": False}, "erm_swad"),
        (PACS(), {"backbone": "tiny_cnn"}, "erm_swad"),
        (RotatedColoredMNIST(), {}, "erm_swad"),
        (RotatedColoredMNIST(), {"backbone": "deit_tiny_patch16_224"}, "messi_swad"),
        (TwoSubsets(), {}, "erm_swad"),
        (Arrays(path="features.npz"), {}, "messi_swad"),
        (FeatureTable(path="table.csv"), {}, "messi_swad"),
        (Arrays(path="features.npz"), {"backbone": "mlp"}, "erm_swad"),
    ],
)
def test_the_default_depends_on_the_network(data: DataConfig, encoder: dict[str, Any], name: str) -> None:
    chosen = EncoderConfig(**encoder)
    assert default_recipe(data, chosen) == name
    assert name in DEFAULTS
    assert recipe(data=data, encoder=chosen) == recipe(name, data=data, encoder=chosen)


@pytest.mark.parametrize("name", RECIPES)
def test_a_config_knows_its_recipe_whatever_data_protocol_and_schedule_are(name: str) -> None:
    schedule: dict[str, Any] = {"steps": 700, "learning_rate": 0.1, "log_every": 3, "deterministic": False}
    for settings in ({}, schedule, {"protocol": "domainbed", "seed": 5}):
        for data in (PACS(), TwoSubsets()):
            assert recipe_of(recipe(name, data=data, **settings).resolved()) == name


def test_settings_override_a_recipe_which_is_then_no_longer_named() -> None:
    stated = RECIPES["messi_swad"]
    config = recipe("messi_swad", data=PACS(), averaging="none", steps=7, seed=3)
    assert (config.seed, config.training) == (3, dataclasses.replace(stated.training, averaging="none", steps=7))
    assert config.algorithm == stated.algorithm
    assert recipe_of(config.resolved()) is None
    for settings in ({"averaging": "ema"}, {"flatness": "sam"}, {"algorithm": MESSI.Config(ssi_weight=0.0)}):
        assert recipe_of(recipe("paper", data=PACS(), **settings).resolved()) is None
    # Another method with the training settings of a recipe: for ERM this is a recipe of its own.
    assert recipe_of(recipe("messi_swad", data=PACS(), algorithm=CORAL.Config()).resolved()) is None
    assert recipe_of(recipe("messi_swad", data=PACS(), algorithm=ERM.Config()).resolved()) == "erm_swad"
    with pytest.raises(MessiError, match=r"Did you mean 'averaging'\?"):
        recipe("messi_swad", data=PACS(), averagin="none")
    with pytest.raises(MessiError, match=r"no recipe named 'mesi_swad'.*Did you mean 'messi_swad'\?"):
        recipe("mesi_swad", data=PACS())
    with pytest.raises(MessiError, match=r"target must be a tuple such as .*, but is 'sketch'"):
        recipe(data=PACS(), target="sketch")
    with pytest.raises(MessiError, match=r"data must be an object such as messi\.Folder\(.*, but is 'photos'"):
        recipe(data="photos")  # type: ignore[arg-type]  # what the command line takes


def test_every_other_plain_method_has_no_recipe() -> None:
    named = {}
    for name in ALGORITHMS.names():
        config = RunConfig(data=PACS(), algorithm=ALGORITHMS.config(name)()).resolved()
        named[name] = recipe_of(config)
    assert {key: value for key, value in named.items() if value} == {"messi": "paper", "erm": "erm"}


def test_a_setting_of_the_protocol_that_a_recipe_states_distinguishes_recipes(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Recipe(title="slow", algorithm=MESSI.Config(), training=TrainingConfig(learning_rate=1e-5))
    monkeypatch.setattr(recipes, "RECIPES", {"slow": slow, "paper": RECIPES["paper"], "erm": RECIPES["erm"]})
    assert recipe_of(recipe("slow", data=PACS()).resolved()) == "slow"
    assert recipe_of(recipe("paper", data=PACS()).resolved()) == "paper"
    assert recipe_of(recipe("paper", data=PACS(), learning_rate=2e-5).resolved()) is None
    assert recipe_of(recipe("erm", data=PACS(), learning_rate=1e-5).resolved()) is None
    assert recipe_of(recipe("slow", data=OfficeHome()).resolved()) == "slow"  # where it is also the protocol's


def test_a_result_names_its_recipe(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"data": TwoSubsets(per_domain=30), "target": ("a1",), "batch_per_domain": 4, "steps": 4}
    configs = {
        "messi_swad": recipe("messi_swad", evaluate_every=1, **settings),
        "erm": recipe("erm", **settings),
        None: recipe("erm", algorithm=CORAL.Config(), **settings),
    }
    for number, (name, config) in enumerate(configs.items()):
        run(config, out=tmp_path / str(number), device="cpu")
        assert json.loads((tmp_path / str(number) / "result.json").read_text())["recipe"] == name
    average = average_runs([tmp_path / "1"], out=tmp_path / "average", device="cpu")
    assert json.loads((average.path / "result.json").read_text())["recipe"] is None  # no recipe averages runs


def test_the_page_of_recipes_lists_them_all_with_their_settings() -> None:
    page = (Path(__file__).parents[2] / "docs" / "recipes.md").read_text()
    rows = {
        line.split("`")[1]: line for line in page.splitlines() if line.startswith("| `") and "messi train" not in line
    }
    assert rows.keys() == RECIPES.keys()
    assert {name for name, row in rows.items() if "default for" in row} == DEFAULTS.keys()
    assert all(when in rows[name] for name, when in DEFAULTS.items())
    for name, row in rows.items():
        listed = row.rsplit(" | ", 1)[1].strip("|` ").replace("none", "")
        words = [f"--{key.replace('_', '-')} {_number(value)}" for key, value in RECIPES[name].settings.items()]
        assert listed == " ".join(words)


def _number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
