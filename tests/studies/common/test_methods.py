"""Methods with settings, as users write them."""

import dataclasses

import pytest

from messi.algorithms.erm import ERM
from messi.algorithms.messi import MESSI
from messi.core.errors import MessiError
from messi.data.datasets.two_subsets import TwoSubsets
from messi.engine.config import RunConfig
from messi.engine.recipes import RECIPES
from messi.engine.training_config import TrainingConfig
from messi.models.encoder import EncoderConfig
from messi.studies.common.methods import method_and_settings, method_label, name_and_settings, vary_methods, with_method

ENCODER, TRAINING = EncoderConfig(backbone="tiny_cnn"), TrainingConfig(steps=50, averaging="ma")
SHARED = RunConfig(data=TwoSubsets(), encoder=ENCODER, training=TRAINING)


def test_settings_go_to_the_method_its_training_and_its_encoder() -> None:
    text = "messi  ssi_weight=0.1 selector=global averaging=swad steps=7 image_size=64 pretrained=false"
    built = with_method(text, SHARED)
    assert built.algorithm == MESSI.Config(ssi_weight=0.1, selector="global")
    assert built.training == TrainingConfig(steps=7, averaging="swad")
    assert built.encoder == EncoderConfig(backbone="tiny_cnn", image_size=64, pretrained=False)
    plain = with_method("erm", SHARED)
    assert (plain.algorithm, plain.training, plain.encoder) == (ERM.Config(), TRAINING, ENCODER)
    sized = dataclasses.replace(SHARED, encoder=EncoderConfig(image_size=9))
    assert with_method("erm image_size=none", sized).encoder.image_size is None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("mesi", "Did you mean 'messi'?"),
        ("messi ssi_wight=1", "Did you mean 'ssi_weight'?"),
        ("erm_swat", "Did you mean 'erm_swad'?"),
        ("erm ssi_weight=1", "There is no setting of the method erm, its training or its encoder named 'ssi_weight'"),
        ("messi ssi_weight=much", "ssi_weight must be a number, but is 'much'."),
        ("erm averaging=most", "averaging must be one of 'none', 'ma', 'ema', 'swad', but is 'most'."),
        ("erm steps=0", "steps must be at least 1, but is 0."),
        ("erm pretrained=maybe", "pretrained must be True or False, but is 'maybe'."),
    ],
)
def test_a_wrong_setting_is_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(MessiError) as error:
        with_method(text, SHARED)
    assert sentence in str(error.value)


def test_a_recipe_is_its_method_with_its_settings_which_others_override() -> None:
    recipe = RECIPES["messi_swad"]
    built = with_method("messi_swad", SHARED)
    assert built.algorithm == recipe.algorithm
    assert built.training == dataclasses.replace(TRAINING, averaging="swad")
    changed = with_method("messi_swad sparsity_weight=0.5 averaging=none", SHARED)
    assert changed.algorithm == dataclasses.replace(recipe.algorithm, sparsity_weight=0.5)  # type: ignore[call-arg]
    assert changed.training.averaging == "none"
    assert vary_methods(["messi_swad"], ["ssi_weight=1"]) == ("messi_swad ssi_weight=1",)
    kind, stated = method_and_settings("erm_swad")
    assert (kind, stated) == (ERM.Config, {"averaging": "swad"})


def test_names_may_have_spaces_and_files_are_named_without_their_folder() -> None:
    assert name_and_settings("my photos/a b  damaged=leave_out") == ("my photos/a b", {"damaged": "leave_out"})
    assert name_and_settings("x=y") == ("x=y", {})
    assert method_label("/home/me/mine.py steps=3") == "mine steps=3"


def test_every_combination_of_the_fields_that_a_method_has() -> None:
    varied = vary_methods(["erm", "messi top=1"], ["ssi_weight=0.1,1", "steps=5,6"])
    assert varied == (
        *("erm steps=5", "erm steps=6"),
        *("messi top=1 ssi_weight=0.1 steps=5", "messi top=1 ssi_weight=0.1 steps=6"),
        *("messi top=1 ssi_weight=1 steps=5", "messi top=1 ssi_weight=1 steps=6"),
    )
    assert vary_methods(["erm", "coral"], []) == ("erm", "coral")
    with pytest.raises(MessiError, match=r"no setting of these methods named 'ssi_wight'.*Did you mean 'ssi_weight'"):
        vary_methods(["erm", "messi"], ["ssi_wight=1"])
    for text in ("ssi_weight", "ssi_weight=", "=1"):
        with pytest.raises(MessiError, match="--vary must be written as field=value,value"):
            vary_methods(["messi"], [text])
