"""What the recipe is compared with on held-out targets, and what each difference shows."""

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, Literal

from messi.algorithms.common.base import AlgorithmConfig
from messi.algorithms.coral import CORAL
from messi.algorithms.erm import ERM
from messi.algorithms.gmoe import GMoE
from messi.core.errors import MessiError
from messi.engine.config import TrainingConfig
from messi.engine.recipes import RECIPES
from messi.experiments.common.comparison import Comparison
from messi.models.encoder import SMALL

Arm = Literal[
    "ERM",
    "ERM + averaging",
    "CORAL + averaging",
    "GMoE + averaging",
    "recipe without alignment",
    "MESSI, paper",
    "MESSI, recipe",
]
RECIPE = "messi_swad"
"""The recipe under study, by its name in ``engine/recipes.py``."""
EVALUATIONS = 50
"""In every run on images of any size: SWAD averages between evaluations."""
WHOLE = Comparison("everything", "MESSI, recipe", "ERM")
"""On digits also for every number of source domains."""
COMPARISONS = (
    Comparison("averaging", "ERM + averaging", "ERM"),
    Comparison("experts", "recipe without alignment", "ERM + averaging"),
    Comparison("alignment", "MESSI, recipe", "recipe without alignment"),
    Comparison("experts and alignment", "MESSI, recipe", "ERM + averaging"),
    WHOLE,
    Comparison("recipe instead of paper", "MESSI, recipe", "MESSI, paper"),
)
_TRANSFORMER: Arm = "GMoE + averaging"


def all_arms() -> dict[Arm, tuple[AlgorithmConfig, TrainingConfig]]:
    """Return the method and the stated training settings of every arm."""
    recipe, paper, plain = RECIPES[RECIPE], RECIPES["paper"], TrainingConfig()
    unaligned: dict[str, Any] = {"ssi_weight": 0.0}
    return {
        "ERM": (ERM.Config(), plain),
        "ERM + averaging": (ERM.Config(), recipe.training),
        "CORAL + averaging": (CORAL.Config(), recipe.training),
        "GMoE + averaging": (GMoE.Config(), recipe.training),
        "recipe without alignment": (dataclasses.replace(recipe.algorithm, **unaligned), recipe.training),
        "MESSI, paper": (paper.algorithm, paper.training),
        "MESSI, recipe": (recipe.algorithm, recipe.training),
    }


def arms_on(backbone: str, chosen: Collection[Arm]) -> Mapping[Arm, tuple[AlgorithmConfig, TrainingConfig]]:
    """Return the chosen arms, by default all that the network allows."""
    wanted = chosen or [arm for arm in all_arms() if not (backbone in SMALL and arm == _TRANSFORMER)]
    return {arm: settings for arm, settings in all_arms().items() if arm in wanted}


def check_arms(backbone: str, chosen: Collection[Arm]) -> None:
    """Raise if a chosen arm cannot use the network."""
    if _TRANSFORMER in chosen and backbone in SMALL:
        raise MessiError(
            f"The arm '{_TRANSFORMER}' requires a vision transformer, but the backbone is {backbone}; omit it from "
            "--arms."
        )


def describe_recipe() -> str:
    """Return a sentence for the caption of a table: what the names of the arms mean."""
    recipe = RECIPES[RECIPE]
    settings = ", ".join(f"{key} {value}" for key, value in recipe.settings.items())
    return (
        f"The recipe is {recipe.algorithm.name} with {settings or 'its defaults'}; '+ averaging' is another method "
        "with the recipe's training settings"
    )
