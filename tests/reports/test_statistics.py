import itertools
import math

import numpy as np
import pytest
from scipy.stats import ttest_1samp, ttest_ind

from messi.core.errors import MessiError
from messi.reports.statistics import (
    Scores,
    Summary,
    growth,
    paired_difference,
    summarise,
    target_average,
    whole_seeds,
    worst_target,
)

# Means over seeds 70 and 60; averages over targets 64, 66 and 65.
SCORES = {
    ("a", 0): 68.0,
    ("a", 1): 70.0,
    ("a", 2): 72.0,
    ("b", 0): 60.0,
    ("b", 1): 62.0,
    ("b", 2): 58.0,
}


def shifted(scores: Scores, by: dict[str, list[float]]) -> dict[tuple[str, int], float]:
    return {(target, seed): value + by[target][seed] for (target, seed), value in scores.items()}


def parts(summary: Summary | None) -> tuple[object, ...]:
    assert summary is not None
    return summary.mean, summary.spread, summary.n


def test_mean_and_sample_deviation() -> None:
    # Squared distances to 5: 9, 1, 1, 1, 0, 0, 4, 16; their sum is 32.
    values = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]
    assert parts(summarise(values)) == (5.0, pytest.approx(math.sqrt(32 / 7)), 8)
    assert parts(summarise(values, dispersion="standard error")) == (5.0, pytest.approx(2 / math.sqrt(8)), 8)


def test_a_single_value_has_no_spread() -> None:
    assert summarise([3.5]) == Summary(3.5, None, 1)
    assert summarise([3.5], dispersion="standard error") == Summary(3.5, None, 1)


def test_a_value_that_is_not_finite_is_not_hidden() -> None:
    summary = summarise([1.0, math.nan, 2.0])
    assert (math.isnan(summary.mean), summary.spread, summary.n) == (True, None, 3)


def test_equal_values_have_no_deviation() -> None:
    assert summarise([0.1, 0.1, 0.1]) == Summary(0.1, 0.0, 3)


def test_no_value_is_refused() -> None:
    with pytest.raises(MessiError, match="`values` is empty"):
        summarise([])


def test_a_summary_does_not_depend_on_the_order() -> None:
    values = [0.1, 1e16, 0.7, -1e16, 0.3]
    assert len({summarise(order) for order in itertools.permutations(values)}) == 1


def test_the_average_is_taken_seed_by_seed() -> None:
    average = target_average(SCORES, ["a", "b"])
    # 64, 66, 65; the six values themselves deviate by 5.7, the targets' deviations are 2.
    assert parts(average) == (65.0, pytest.approx(1.0), 3)
    error = target_average(SCORES, ["a", "b"], dispersion="standard error")
    assert parts(error) == (65.0, pytest.approx(math.sqrt(2 / 3) / math.sqrt(3)), 3)


def test_opposite_changes_of_targets_leave_the_average_unchanged() -> None:
    scores = {("a", 0): 60.0, ("a", 1): 70.0, ("b", 0): 70.0, ("b", 1): 60.0}
    assert target_average(scores, ["a", "b"]) == Summary(65.0, 0.0, 2)


@pytest.mark.parametrize("missing", SCORES)
def test_a_missing_cell_empties_average_and_worst(missing: tuple[str, int]) -> None:
    rest = {key: value for key, value in SCORES.items() if key != missing}
    assert target_average(rest, ["a", "b"]) is None
    assert worst_target(rest, ["a", "b"]) is None


def test_a_target_without_any_run_empties_the_average() -> None:
    assert target_average(SCORES, ["a", "b", "c"]) is None
    assert worst_target(SCORES, ["a", "b", "c"]) is None
    assert target_average({}, ["a"]) is None
    assert target_average(SCORES, []) is None


def test_the_worst_target_has_the_lowest_mean() -> None:
    # Each seed's lowest is 50 here, but no target's mean is below 54.
    scores = {("a", 0): 50.0, ("a", 1): 58.0, ("b", 0): 60.0, ("b", 1): 50.0}
    worst = worst_target(scores, ["b", "a"])
    assert worst is not None
    assert (worst.target, *parts(worst.summary)) == ("a", 54.0, pytest.approx(math.sqrt(32)), 2)


def test_a_constant_gain_has_an_interval_of_no_width() -> None:
    better = {key: value + 1.5 for key, value in SCORES.items()}
    difference = paired_difference(better, SCORES, ["a", "b"])
    assert difference is not None
    assert (difference.mean, difference.interval, difference.n) == (1.5, (1.5, 1.5), 6)


def test_targets_weigh_the_same_however_many_pairs_they_have() -> None:
    baseline = {("a", 0): 0.0, ("a", 1): 0.0, ("a", 2): 0.0, ("b", 0): 0.0}
    scores = {("a", 0): 1.0, ("a", 1): 1.0, ("a", 2): 1.0, ("b", 0): 5.0}
    difference = paired_difference(scores, baseline, ["a", "b"])
    assert difference is not None
    # A single pair has no variance, so there is a mean but no interval.
    assert (difference.mean, difference.interval, difference.n) == (3.0, None, 4)


def test_only_pairs_count_and_every_target_needs_one() -> None:
    baseline = {key: value for key, value in SCORES.items() if key != ("a", 2)}
    difference = paired_difference(SCORES, baseline, ["a", "b"])
    assert difference is not None
    assert difference.n == 5
    assert paired_difference(SCORES, {("a", 0): 1.0}, ["a", "b"]) is None
    assert paired_difference({("a", 0): 1.0}, {("a", 1): 1.0}, ["a"]) is None
    assert paired_difference(SCORES, SCORES, ["a", "b", "c"]) is None, "neither has run on c"
    assert paired_difference({}, {}, []) is None


def test_the_interval_of_one_target_is_that_of_a_paired_t_test() -> None:
    gains = [0.0, 1.0, 4.0]
    only = {key: value for key, value in SCORES.items() if key[0] == "a"}
    difference = paired_difference(shifted(only, {"a": gains}), only, ["a"])
    assert difference is not None
    assert difference.interval == pytest.approx(ttest_1samp(gains, 0).confidence_interval())


def test_the_interval_of_two_targets_is_that_of_welchs_test() -> None:
    gains = {"a": [0.0, 1.0, 4.0], "b": [-2.0, 3.0, 3.5]}
    difference = paired_difference(shifted(SCORES, gains), SCORES, ["a", "b"])
    assert difference is not None
    # Welch's test compares two means; the sum of two means is the difference of the first and the negated second.
    welch = ttest_ind(gains["a"], [-value for value in gains["b"]], equal_var=False).confidence_interval()
    assert difference.interval == pytest.approx((welch.low / 2, welch.high / 2))


@pytest.mark.parametrize("deviations", [(1.0, 1.0, 1.0, 1.0), (0.5, 1.0, 2.0, 4.0)])
def test_of_many_intervals_of_three_seeds_95_percent_contain_the_truth(deviations: tuple[float, ...]) -> None:
    random, repeats = np.random.default_rng(1), 3000
    found = 0
    for _ in range(repeats):
        scores = {(f"t{n}", s): random.normal(0.7, d) for n, d in enumerate(deviations) for s in range(3)}
        difference = paired_difference(scores, dict.fromkeys(scores, 0.0), [f"t{n}" for n in range(4)])
        assert difference is not None
        assert difference.interval is not None
        low, high = difference.interval
        found += low < 0.7 < high
    # Four standard errors are 0.016; Satterthwaite's approximation errs on the safe side when variances are equal.
    assert 0.934 < found / repeats < 0.982


def test_a_difference_depends_neither_on_order_nor_on_the_names_of_seeds() -> None:
    scores = shifted(SCORES, {"a": [0.3, -1.0, 2.0], "b": [0.1, 0.5, -0.2]})
    turned = dict(reversed(scores.items()))
    renamed = {(target, 9 - seed): value for (target, seed), value in scores.items()}
    baseline = {(target, 9 - seed): value for (target, seed), value in SCORES.items()}
    first = paired_difference(scores, SCORES, ["a", "b"])
    assert first == paired_difference(turned, SCORES, ["b", "a"]) == paired_difference(renamed, baseline, ["a", "b"])


def test_growth_of_one_seed() -> None:
    # Unsorted on purpose: the last is that of the largest number of domains.
    found = growth([{9: 80.0, 17: 60.0, 3: 50.0, 5: 70.0}])
    assert found is not None
    assert found.peak_at == 9
    parts = (found.peak, found.last, found.drop, found.relative_drop, found.average)
    assert parts == tuple(Summary(value, None, 1) for value in (80.0, 60.0, 20.0, 0.25, 65.0))


def test_the_peak_is_that_of_the_mean_curve() -> None:
    """The seeds' individual peaks are 80 and 72, with mean 76; the mean curve is 60, 74, 68."""
    found = growth([{3: 50.0, 5: 76.0, 7: 80.0}, {3: 70.0, 5: 72.0, 7: 56.0}])
    assert found is not None
    assert (found.peak_at, found.peak.mean, found.last.mean, found.drop.mean) == (5, 74.0, 68.0, 6.0)
    # The first seed rises by 4 from 76, the second falls by 16 from 72.
    assert found.drop == summarise([-4.0, 16.0])
    assert found.relative_drop == summarise([-4 / 76, 16 / 72])
    assert found.average == summarise([206 / 3, 66.0])


def test_growth_is_flat_at_a_peak_at_the_end_and_takes_the_first_of_equal_peaks() -> None:
    rising, flat = growth([{3: 50.0, 5: 70.0}]), growth([{3: 70.0, 5: 70.0, 7: 60.0}])
    assert rising is not None
    assert flat is not None
    assert (rising.peak_at, rising.drop.mean, rising.relative_drop.mean) == (5, 0.0, 0.0)
    assert flat.peak_at == 3


def test_growth_needs_a_curve() -> None:
    assert growth([]) is None


def test_complete_seeds_have_every_target() -> None:
    rest = {key: value for key, value in SCORES.items() if key != ("b", 1)}
    assert whole_seeds(rest, ["a", "b"]) == {key: SCORES[key] for key in SCORES if key[1] != 1}
    assert whole_seeds(SCORES, ["a", "b"]) == SCORES
    assert whole_seeds(SCORES, ["a", "b", "c"]) == {}
