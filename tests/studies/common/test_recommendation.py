"""Which method is recommended, and what is said about the others."""

import pytest

from messi.reports.statistics import Scores
from messi.studies.common.recommendation import recommend

GROUPS, SEEDS = ("a", "b", "c"), range(3)


def scores(level: float, *, wobble: float = 0.0) -> Scores:
    """Return scores around a level; the wobble differs between seeds and has mean 0."""
    return {(group, seed): level + wobble * (seed - 1) for group in GROUPS for seed in SEEDS}


def test_the_baseline_is_kept_unless_an_interval_excludes_0() -> None:
    found = recommend({"erm": scores(70), "noisy": scores(71, wobble=5), "worse": scores(69)}, "erm")
    assert found is not None
    assert found.method == "erm"
    assert found.reason == "No other method is better than erm beyond the variation between these seeds."
    worse, noisy = found.findings
    assert worse == "Worse than erm: worse, −1.0 points (95 % interval −1.0 to −1.0)."
    assert noisy.startswith("Not distinguishable from erm with these seeds: noisy, +1.0 points (95 % interval −")


def test_the_first_method_that_cannot_be_told_from_the_best_is_recommended() -> None:
    """A simple method at +2 and a noisy one at +2.5 are equal; a third at +9 would not be."""
    given = {"erm": scores(70), "simple": scores(72), "complex": scores(72.5, wobble=1.5)}
    found = recommend(given, "erm")
    assert found is not None
    assert found.method == "simple"
    assert "complex has a higher mean, but is not distinguishable from simple" in found.reason
    best = recommend({**given, "best": scores(79)}, "erm")
    assert best is not None
    assert (best.method, "higher mean" in best.reason) == ("best", False)


def test_a_method_that_is_not_better_than_the_baseline_is_never_chosen() -> None:
    """It comes first and cannot be told from the best, but neither from the baseline."""
    given = {"erm": scores(70), "unsure": scores(71, wobble=8), "better": scores(72)}
    found = recommend(given, "erm")
    assert found is not None
    assert found.method == "better"


def test_a_single_seed_shows_nothing() -> None:
    one = {name: {("a", 0): level, ("b", 0): level} for name, level in (("erm", 50.0), ("other", 90.0))}
    found = recommend(one, "erm")
    assert found is not None
    assert found.method == "erm"
    assert "--seeds 3" in found.reason


def test_nothing_is_recommended_while_runs_are_missing() -> None:
    partial = {key: value for key, value in scores(90).items() if key != ("c", 2)}
    assert recommend({"erm": scores(70), "other": partial}, "erm") is None
    assert recommend({"erm": {}}, "erm") is None


def test_differences_are_paired() -> None:
    """Both vary by 20 points between seeds, but the difference is 1 in every pair."""
    found = recommend({"erm": scores(70, wobble=20), "other": scores(71, wobble=20)}, "erm")
    assert found is not None
    assert found.method == "other"
    assert found.findings == ["Better than erm: other, +1.0 points (95 % interval +1.0 to +1.0)."]


@pytest.mark.parametrize("baseline", ["erm", "coral"])
def test_a_single_method_is_recommended(baseline: str) -> None:
    found = recommend({baseline: scores(70)}, baseline)
    assert found is not None
    assert (found.method, found.reason, found.findings) == (baseline, "It is the only method.", [])
