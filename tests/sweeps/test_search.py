"""Draws from the declared ranges: their distribution, and that every field has its own random numbers."""

import dataclasses
import math

import numpy as np
import pytest

from messi.algorithms.common.base import ALGORITHMS
from messi.algorithms.dann import DANN
from messi.algorithms.irm import IRM
from messi.algorithms.messi import MESSI
from messi.core.config import LogUniform, OneOf, Uniform
from messi.core.errors import MessiError
from messi.data.datasets.pacs import PACS
from messi.data.datasets.rotated_mnist import RotatedMNIST
from messi.engine.config import RunConfig
from messi.sweeps.search import check_changes, draw, drawn_values, position, search_space

LARGE, SMALL = RunConfig(data=PACS()), RunConfig(data=RotatedMNIST())
NUMBER = 4000


def is_uniform(values: np.ndarray) -> bool:
    """Return whether the Kolmogorov-Smirnov test does not reject that values are uniform from 0 to 1, with p = 0.01."""
    ordered, steps = np.sort(values), np.arange(len(values) + 1) / len(values)
    distance = max(np.abs(ordered - steps[1:]).max(), np.abs(ordered - steps[:-1]).max())
    return bool(distance < 1.63 / math.sqrt(len(values)))


def samples(config: RunConfig, field: str, changes: tuple[str, ...] = ()) -> np.ndarray:
    space = {field: search_space(config, changes)[field]}
    return np.array([drawn_values(config, k, seed=0, space=space)[field] for k in range(1, NUMBER + 1)])


@pytest.mark.parametrize(
    ("config", "field", "base", "low", "high"),
    [
        (LARGE, "learning_rate", 10, -5, -3.5),
        (SMALL, "learning_rate", 10, -4.5, -2.5),
        (LARGE, "weight_decay", 10, -6, -2),
        (dataclasses.replace(LARGE, algorithm=DANN.Config()), "gradient_penalty", 10, -2, 1),
        (dataclasses.replace(SMALL, algorithm=IRM.Config()), "penalty_weight", 10, -1, 5),
    ],
)
def test_logarithmic_draws_have_the_distribution_of_domainbed(
    config: RunConfig, field: str, base: float, low: float, high: float
) -> None:
    exponents = np.log(samples(config, field)) / math.log(base)
    assert is_uniform((exponents - low) / (high - low))


@pytest.mark.parametrize(("config", "low", "high"), [(LARGE, 3, 5.5), (SMALL, 3, 9)])
def test_batch_sizes_are_whole_numbers_with_the_frequencies_of_domainbed(
    config: RunConfig, low: float, high: float
) -> None:
    """DomainBed takes int(2**r.uniform(low, high)); P(size <= n) is therefore the share of exponents below n + 1."""
    sizes = samples(config, "batch_per_domain")
    assert sizes.dtype.kind == "i"
    for size in (8, 11, 16, 22, 31, 44):
        expected = min(1, max(0, (math.log2(size + 1) - low) / (high - low)))
        assert abs((sizes <= size).mean() - expected) < 4 * math.sqrt(0.25 / NUMBER)
    assert (sizes.min(), sizes.max()) == (8, math.floor(2**high) - (high == 9))


def test_choices_are_equally_frequent_and_positions_are_uniform_and_independent() -> None:
    counts = np.unique(samples(LARGE, "num_experts"), return_counts=True)
    assert counts[0].tolist() == [2, 4, 6, 8]
    expected = NUMBER / 4
    assert ((counts[1] - expected) ** 2 / expected).sum() < 11.3  # the chi-squared test with p = 0.01
    fields = [[position(seed, name, k) for k in range(NUMBER)] for seed in (0, 1) for name in ("a", "b")]
    for one in fields:
        assert is_uniform(np.array(one))
        assert abs(np.corrcoef(one[1:], one[:-1])[0, 1]) < 0.06
    assert np.abs(np.corrcoef(fields) - np.eye(4)).max() < 0.06


def test_a_draw_depends_on_its_seed_field_and_number_alone_and_methods_share_it() -> None:
    every = drawn_values(LARGE, 3, seed=5, space=search_space(LARGE))
    for field, search in search_space(LARGE).items():
        assert drawn_values(LARGE, 3, seed=5, space={field: search}) == {field: every[field]}
    other = dataclasses.replace(LARGE, algorithm=DANN.Config())
    shared = drawn_values(other, 3, seed=5, space=search_space(other, ["momentum=0.5"]))
    assert {
        name: shared[name] for name in ("learning_rate", "weight_decay", "batch_per_domain")
    }.items() <= every.items()
    assert drawn_values(LARGE, 3, seed=6, space=search_space(LARGE)) != every
    assert drawn_values(LARGE, 4, seed=5, space=search_space(LARGE)) != every


@pytest.mark.parametrize("name", ALGORITHMS.names())
def test_draw_0_is_the_defaults_and_every_other_draw_is_a_valid_config_of_its_own(name: str) -> None:
    for data in (LARGE, SMALL):
        config = dataclasses.replace(data, algorithm=ALGORITHMS.config(name)())
        space = search_space(config)
        assert draw(config, 0, seed=0, space=space) == config
        drawn = [draw(config, number, seed=0, space=space) for number in range(1, 30)]
        assert len({one.fingerprint() for one in drawn}) == 29
        for number, one in enumerate(drawn, 1):
            values = drawn_values(config, number, seed=0, space=space)
            assert values.items() <= {**vars(one.algorithm), **vars(one.training)}.items()


def test_small_images_are_searched_without_weight_decay() -> None:
    assert "weight_decay" in search_space(LARGE)
    assert "weight_decay" not in search_space(SMALL)


def test_changes_override_and_add_ranges() -> None:
    changes = ("learning_rate=1e-4..1e-2", "num_experts=3..5", "epsilon=log:0.01..1", "averaging=none,swad", "eta=1,2")
    space = search_space(LARGE, changes)
    assert space["learning_rate"] == LogUniform(-4, -2)
    assert space["num_experts"] == Uniform(3, 6)
    assert space["epsilon"] == LogUniform(-2, 0)
    assert space["averaging"] == OneOf(("none", "swad"))
    assert "eta" not in space  # of another method
    assert set(samples(LARGE, "num_experts", changes)) == {3, 4, 5}
    assert draw(LARGE, 1, seed=0, space=space).training.averaging in ("none", "swad")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("learning_rate=1e-2..1e-4", "--search learning_rate=1e-2..1e-4 is an empty range; the first number must be"),
        ("learning_rate=", "--search learning_rate= is empty; write learning_rate=LOW..HIGH"),
        ("ssi_weight=0..1", "is logarithmic, so both numbers must be above 0"),
        ("averaging=a..b", "averaging is not a number; write averaging=A,B,C"),
        ("averaging=none,best", "averaging must be one of 'none'"),
        ("batch_per_domain=0..8", "batch_per_domain must be at least 1"),
    ],
)
def test_a_range_that_cannot_be_searched_is_named(change: str, words: str) -> None:
    with pytest.raises(MessiError) as error:
        search_space(LARGE, [change])
    assert words in str(error.value)


def test_a_change_of_a_field_that_no_method_has_is_named() -> None:
    with pytest.raises(MessiError, match=r"no hyper-parameter named 'learning_rat'.*learning_rate"):
        check_changes([LARGE, dataclasses.replace(LARGE, algorithm=MESSI.Config())], ["learning_rat=1,2"])
