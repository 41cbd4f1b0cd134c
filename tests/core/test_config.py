from collections import Counter
from dataclasses import dataclass, fields, replace
from typing import Annotated, Literal

import pytest

from messi.algorithms.common.base import ALGORITHMS
from messi.algorithms.erm import ERM
from messi.algorithms.messi import MESSI
from messi.core.config import OPEN, Added, Bounds, Config
from messi.core.errors import MessiError
from messi.data.datasets.common.base import DATASETS
from messi.data.datasets.folder import Folder
from messi.engine.config import RunConfig, TrainingConfig
from messi.models.encoder import EncoderConfig

OPTIONS = ("data", "algorithm", "config", "out", "device", "capture")
"""The options of ``messi train`` that are not settings."""


@dataclass(frozen=True, kw_only=True)
class Example(Config):
    weight: Annotated[float, Bounds(minimum=0)] = 1.0
    share: Annotated[float, Bounds(above=0, maximum=1)] | None = None
    kind: Literal["a", "b"] = "a"
    other: Literal["a", "b"] | None = None
    number: int = 0
    names: tuple[str, ...] = ()
    later: Annotated[int, Bounds(minimum=1)] = OPEN


@pytest.mark.parametrize(
    ("setting", "value", "sentence"),
    [
        ("weight", -1, "weight must be at least 0, but is -1."),
        ("weight", float("nan"), "weight must be a finite number, but is nan."),
        ("weight", float("inf"), "weight must be a finite number, but is inf."),
        ("share", 0, "share must be above 0 and at most 1, but is 0."),
        ("kind", "c", "kind must be one of 'a', 'b', but is 'c'."),
        ("other", "c", "other must be one of 'a', 'b', but is 'c'."),
        ("weight", "1", "weight must be a number, but is '1'."),
        ("weight", True, "weight must be a number, but is True."),
        ("number", 1.5, "number must be a whole number, but is 1.5."),
        ("names", "abc", "names must be a tuple such as ('a', 'b'), but is 'abc'."),
        ("names", ("a", 1), "Each value of names must be text, but is 1."),
        ("weight", None, "weight must be a number, but is None."),
        ("later", 0, "later must be at least 1, but is 0."),
        ("number", 10**20, "number must be at most 1e+18, but is 100000000000000000000."),
    ],
)
def test_a_value_out_of_bounds_is_named(setting: str, value: object, sentence: str) -> None:
    with pytest.raises(MessiError) as error:
        replace(Example(), **{setting: value})  # type: ignore[arg-type]  # a wrong value is the point
    assert str(error.value) == sentence


def test_values_at_the_bounds_are_allowed_and_an_open_field_may_stay_open() -> None:
    assert Example(weight=0, share=1).share == 1
    assert Example().later is None
    assert Example(later=1).later == 1


def test_a_run_config_is_restored_from_its_dict() -> None:
    for name in ALGORITHMS.names():
        config = RunConfig(data=Folder(path="x"), target=("a", "b"), algorithm=ALGORITHMS.config(name)())
        assert RunConfig.from_dict(config.to_dict()) == config, name


def test_no_two_settings_have_the_same_option() -> None:
    """On the command line every setting is an option without a prefix."""
    for algorithm in ALGORITHMS.names():
        for data in DATASETS.names():
            parts = (RunConfig, EncoderConfig, TrainingConfig, ALGORITHMS.config(algorithm), DATASETS.config(data))
            nested = {"data", "algorithm", "encoder", "training"}
            names = [field.name for part in parts for field in fields(part) if field.name not in nested]
            count = Counter([*names, *OPTIONS])
            assert max(count.values()) == 1, f"--algorithm {algorithm} --data {data}: {count.most_common(2)}"


def test_the_folder_name_fits_a_file_system_for_any_number_of_targets() -> None:
    config = RunConfig(data=Folder(path="x"), target=tuple(f"location {i}" for i in range(48)))
    assert config.folder_name().startswith("folder_messi_48-targets_seed0_")


def test_the_dict_names_the_algorithm_so_equal_fields_do_not_collide() -> None:
    data = Folder(path="x")
    erm, messi = RunConfig(data=data, algorithm=ERM.Config()), RunConfig(data=data, algorithm=MESSI.Config())
    assert erm.to_dict()["algorithm"] == {"name": "erm"}
    assert erm.fingerprint() != messi.fingerprint()


def test_the_fingerprint_changes_with_a_nested_value_and_only_then() -> None:
    base = RunConfig(data=Folder(path="x"))
    assert base.fingerprint() == RunConfig(data=Folder(path="x")).fingerprint()
    assert base.fingerprint() != replace(base, algorithm=MESSI.Config(ssi_weight=0.1)).fingerprint()
    assert base.fingerprint() != replace(base, seed=1).fingerprint()


def test_a_stale_key_is_an_error_with_a_hint() -> None:
    values = RunConfig(data=Folder(path="x")).to_dict()
    values["algorithm"]["ssi_wieght"] = 1
    with pytest.raises(MessiError, match=r"no setting of MESSI.Config named 'ssi_wieght'.*Did you mean 'ssi_weight'"):
        RunConfig.from_dict(values)


def test_a_missing_key_is_named() -> None:
    values = RunConfig(data=Folder(path="x")).to_dict()
    del values["data"]["path"]
    with pytest.raises(MessiError, match=r"^The settings of Folder must include 'path', which is missing\.$"):
        RunConfig.from_dict(values)


def test_an_unknown_algorithm_gets_a_hint() -> None:
    with pytest.raises(
        MessiError, match=r"no algorithm named 'mesi'; available: cdann, .*messi.* Did you mean 'messi'\?"
    ):
        ALGORITHMS.load("mesi")


@dataclass(frozen=True, kw_only=True)
class _Before(Config):
    """The settings of an earlier version."""

    size: int = 1


@dataclass(frozen=True, kw_only=True)
class _After(Config):
    """The same with one setting more."""

    size: int = 1
    mode: Annotated[str, Added()] = "plain"


def test_an_added_setting_changes_the_fingerprint_only_if_it_is_not_the_default() -> None:
    assert _After(size=2).to_dict() == _Before(size=2).to_dict()
    assert _After(size=2).fingerprint() == _Before(size=2).fingerprint() != _After(size=2, mode="x").fingerprint()
    for one in (_After(), _After(mode="x")):
        assert _After.from_dict(one.to_dict()) == one
