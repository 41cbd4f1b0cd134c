"""Recipes by name: a method with its settings, and the settings of training that belong to it.

A protocol states how a result is measured and how long training takes; a recipe states what is trained, and overrides
the protocol where it says so. Every setting can be overridden in turn. A config does not name its recipe: the name is
derived from its settings, so it is never wrong.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from messi.algorithms.common.base import ALGORITHMS, AlgorithmConfig
from messi.algorithms.erm import ERM
from messi.algorithms.messi import MESSI
from messi.core.config import Config
from messi.core.errors import unknown_name
from messi.data.datasets.common.base import DataConfig
from messi.engine.config import RunConfig
from messi.engine.training_config import TrainingConfig
from messi.models.encoder import EncoderConfig


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A method, and the training settings in which it differs from the protocol."""

    title: str
    algorithm: AlgorithmConfig
    training: TrainingConfig = field(default_factory=TrainingConfig)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that differ from the defaults of the method and from the protocol."""
        return {**_stated(self.algorithm), **_stated(self.training)}


RECIPES: Mapping[str, Recipe] = {
    "paper": Recipe(title="MESSI as in the paper", algorithm=MESSI.Config()),
    "messi_swad": Recipe(
        title="MESSI without its three regularisers, weights averaged by SWAD",
        algorithm=MESSI.Config(sparsity_weight=0.0, balance_weight=0.0, diversity_weight=0.0),
        training=TrainingConfig(averaging="swad"),
    ),
    "erm": Recipe(title="ERM, the baseline", algorithm=ERM.Config()),
    "erm_swad": Recipe(
        title="ERM, weights averaged by SWAD",
        algorithm=ERM.Config(),
        training=TrainingConfig(averaging="swad"),
    ),
}
DEFAULTS: Mapping[str, str] = {
    "messi_swad": "default for pretrained networks and for features",
    "erm_swad": "default for image networks that start from random weights, and for --tune head",
}
"""When a recipe is the default, by its name."""
_NO_EFFECT = {"log_every", "deterministic"}
"""Settings that do not change what is trained."""


def find_recipe(name: str) -> Recipe:
    """Return the recipe of that name."""
    if name not in RECIPES:
        raise unknown_name("recipe", name, RECIPES)
    return RECIPES[name]


def recipe_for_method(name: str) -> Recipe | None:
    """Return the recipe that is named where a method may be named, too; a name of both is that of the method."""
    return None if name in ALGORITHMS.names() else RECIPES.get(name)


def default_recipe(data: DataConfig, encoder: EncoderConfig) -> str:
    """Return the name of the recipe that docs/recipe_study.md chose, by source data alone, for the kind of network."""
    kind = dataclasses.replace(encoder, backbone=encoder.backbone or data.backbone).kind
    fine_tuned = kind in ("large", "low rank") and (encoder.pretrained or encoder.weights)
    return "messi_swad" if fine_tuned or kind == "features" else "erm_swad"


def recipe(name: str | None = None, *, data: DataConfig, target: Sequence[str] = (), **settings: Any) -> RunConfig:
    """Return the config of a run with the settings of a recipe.

    Args:
        name: the recipe: "messi_swad", "paper", "erm" or "erm_swad"; by default the one for the kind of network.
        data: what to train on.
        target: the domains to hold out.
        settings: other settings of a run or of its training, such as ``seed=1``, ``steps=300`` or
            ``averaging="none"``; they override the recipe.

    """
    held_out: Any = target if isinstance(target, str) else tuple(target)  # a text is refused, not split into letters
    plain = RunConfig(data=data, target=held_out)
    chosen = find_recipe(name or default_recipe(data, settings.get("encoder", EncoderConfig())))
    for_run = {one.name for one in dataclasses.fields(RunConfig)} - {"training"}
    for_training = {one.name for one in dataclasses.fields(TrainingConfig)}
    for key in settings:
        if key not in for_run | for_training:
            raise unknown_name("setting of a run", key, for_run | for_training)
    training = {key: value for key, value in settings.items() if key in for_training}
    run = {key: value for key, value in settings.items() if key in for_run}
    return dataclasses.replace(
        plain,
        training=dataclasses.replace(chosen.training, **training),
        **{"algorithm": chosen.algorithm, **run},
    )


def recipe_of(config: RunConfig) -> str | None:
    """Return the name of the recipe that a resolved config follows; None if it follows none.

    The method must be equal, and so must all settings of training, except those of the protocol that no recipe states:
    a deviation from the protocol, such as fewer steps, is reported on its own.
    """
    for name, one in RECIPES.items():
        expected = dataclasses.replace(config, algorithm=one.algorithm, training=one.training).resolved()
        if config.algorithm == one.algorithm and all(
            getattr(config.training, key) == getattr(expected.training, key) for key in _compared()
        ):
            return name
    return None


def _compared() -> set[str]:
    every = {one.name for one in dataclasses.fields(TrainingConfig)}
    stated = {key for one in RECIPES.values() for key in _stated(one.training)}
    return every - _NO_EFFECT - (set(TrainingConfig.open_fields()) - stated)


def _stated(config: Config) -> dict[str, Any]:
    """Return the settings that differ from their defaults."""
    fields = {one.name: one.default for one in dataclasses.fields(config)}
    return {name: value for name, default in fields.items() if (value := getattr(config, name)) != default}
