"""A setting that is said to have no effect on training has none, and every other one is not mentioned."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from messi.algorithms.common.base import AlgorithmConfig
from messi.algorithms.erm import ERM
from messi.algorithms.messi import MESSI
from messi.core.tensorfile import read_tensors
from messi.data.datasets.two_subsets import TwoSubsets
from messi.engine.config import RunConfig, TrainingConfig
from messi.engine.recipes import RECIPES, recipe
from messi.engine.run import run
from messi.engine.unused_settings import unused_settings
from messi.models.encoder import EncoderConfig

DATA = TwoSubsets(per_domain=20)


@pytest.mark.parametrize("name", RECIPES)
def test_no_setting_of_a_recipe_is_unused(name: str) -> None:
    assert unused_settings(recipe(name, data=DATA).resolved()) == {}


def test_a_setting_that_is_used_is_not_mentioned() -> None:
    training = TrainingConfig(averaging="ema", average_from=0.5, ema_decay=0.5, probe_steps=2, probe_learning_rate=0.1)
    method = MESSI.Config(slot_weight="centred", sharpness=2.0, memory=8, load_rate=0.1, balance_momentum=0.5)
    assert unused_settings(RunConfig(data=DATA, training=training, algorithm=method).resolved()) == {}


def test_weights_are_unused_with_a_start_and_layer_decay_with_a_frozen_encoder() -> None:
    encoder = EncoderConfig(backbone="resnet18", weights="w.safetensors", tune="head")
    training = TrainingConfig(layer_decay=0.5)
    config = RunConfig(data=DATA, encoder=encoder, training=training, algorithm=ERM.Config(), start="run")
    assert unused_settings(config.resolved()) == {
        "layer_decay": "tune is 'head'",
        "weights": "start names the weights",
    }


@pytest.mark.parametrize(
    ("base", "changed"),
    [
        ({"averaging": "swad"}, {"average_from": 0.5, "ema_decay": 0.5}),
        ({"averaging": "ma"}, {"swad_optimum_patience": 1, "swad_overfit_patience": 1, "swad_tolerance": 0.0}),
        ({"flatness": "sam"}, {"sagm_alpha": 0.5}),
        ({}, {"flatness_radius": 0.5, "probe_learning_rate": 0.5, "ema_decay": 0.5}),
    ],
)
def test_unused_settings_of_training_have_no_effect(base: Any, changed: Any, tmp_path: Path) -> None:
    assert_without_effect(MESSI.Config(), {**base}, MESSI.Config(), {**base, **changed}, set(changed), tmp_path)


@pytest.mark.parametrize(
    ("base", "changed"),
    [
        ({"discrepancy": "mmd"}, {"epsilon": 1.0, "epsilon_scale": "absolute", "iterations": 2}),
        ({"slot_weight": "product"}, {"sharpness": 9.0}),
        (
            {"ssi_weight": 0.0},
            {"ssi_ramp": 3, "selector": "domain", "slot_weight": "centred", "sharpness": 1.0, "reduction": "sum"},
        ),
        ({"ssi_weight": 0.0}, {"scale_free": True, "debiased": True, "memory": 9, "epsilon": 1.0, "iterations": 2}),
        ({"diversity_weight": 0.0}, {"diversity": "frobenius", "diversity_reduction": "mean"}),
        ({"balance_weight": 0.0}, {"balance_momentum": 0.5}),
        ({"sparsity_weight": 0.0, "balance_weight": 0.0, "diversity_weight": 0.0}, {"regulariser_ramp": 3}),
    ],
)
def test_unused_settings_of_messi_have_no_effect(base: Any, changed: Any, tmp_path: Path) -> None:
    ours, theirs = MESSI.Config(**base), MESSI.Config(**base, **changed)
    assert_without_effect(ours, {}, theirs, {}, set(changed), tmp_path)


def assert_without_effect(
    ours: AlgorithmConfig,
    trained: dict[str, Any],
    theirs: AlgorithmConfig,
    changed: dict[str, Any],
    names: set[str],
    tmp_path: Path,
) -> None:
    """Train both, and compare the parameters of the models."""
    base = RunConfig(data=DATA, target=("b2",), training=TrainingConfig(steps=6, evaluate_every=2, batch_per_domain=4))
    models = []
    for number, (method, training) in enumerate(((ours, trained), (theirs, changed))):
        config = replace(base, algorithm=method, training=replace(base.training, **training))
        assert set(unused_settings(config.resolved())) == (names if number else set())
        path = run(config, out=tmp_path / str(number), device="cpu").path
        models.append(read_tensors(path / "model.safetensors")[0])
    left, right = models
    parameters = [name for name in left if name not in ("load", "steps_taken")]
    assert all(left[name].equal(right[name]) for name in parameters)
