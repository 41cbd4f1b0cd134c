"""The statements of the paper's section on invariance hold, and broken premises break the conclusions."""

import dataclasses
import math
import re

import numpy as np
import pytest

from messi.diagnostics.information import Joint, independent, mutual_information, partitions
from messi.experiments.theory import claims, table
from messi.experiments.theory_claims import global_invariance
from messi.experiments.theory_claims.subset_invariance import best_by_subset, best_global, invariant
from messi.experiments.theory_claims.worlds import (
    REPRESENTATIONS,
    Claim,
    Survey,
    constructive,
    covariate_shift,
    drawn,
    same_conditionals,
    surveys,
)

HOLD = {
    "Proposition 1 (domain expansion)",
    "Proposition 2 (pairwise invariance)",
    "Theorem 1 (shrinking set)",
    "Theorem 2 (monotonicity)",
    "Lemma (subset-conditioned invariance)",
    "Corollary",
    "Theorem 3, the constructive example",
    "Theorem 3, if the input determines the label",
    "Theorem 3, in general",
}
FAIL = {
    "Proposition 1 and Theorem 2, I(Z;Y) over the domains in K",
    "Theorem 2 without its premise",
    "Theorem 3, a sentence of its proof",
    "Theorem 3, subsets that depend on the input",
    "Theorem 3, its premise as stated",
}
FUNCTIONS = tuple(partitions(4))


@pytest.fixture(scope="module")
def checked() -> dict[str, Claim]:
    return {claim.name: claim for claim in claims()}


def binary_entropy(p: float) -> float:
    return -p * math.log2(p) - (1 - p) * math.log2(1 - p)


def with_surveys(monkeypatch: pytest.MonkeyPatch, changed: list[Survey]) -> None:
    monkeypatch.setattr(global_invariance, "surveys", lambda: tuple(changed))


def test_which_claims_hold(checked: dict[str, Claim]) -> None:
    assert {name for name, claim in checked.items() if claim.holds} == HOLD
    assert {name for name, claim in checked.items() if not claim.holds} == FAIL


def test_the_numbers_of_the_examples_are_those_found_by_hand(checked: dict[str, Claim]) -> None:
    moving = checked["Proposition 1 and Theorem 2, I(Z;Y) over the domains in K"].numbers
    assert f"K = {{1,2}}: {binary_entropy(0.1):.3f}" in moving
    assert f"K = {{1,2,3}}: {binary_entropy(1.1 / 3):.3f}" in moving
    premise = checked["Theorem 3, its premise as stated"].numbers
    assert f"I(X;Y|S) = {1 - (binary_entropy(0.1) + binary_entropy(0.4)) / 2:.3f}, best by subset 0.000" in premise
    parity = checked["Theorem 3, subsets that depend on the input"].numbers
    assert f"global {1 - binary_entropy(0.25):.3f}, by subset 0.000" in parity
    example = checked["Theorem 3, the constructive example"].numbers
    assert "by subset 1.000 and 1.000, global 0.500 and 0.000" in example


def test_the_drawn_worlds_are_not_trivial() -> None:
    """Often more than the constant is invariant, seldom everything, and some domains lack labels."""
    everywhere = np.array([s.exact((0, 1, 2, 3)).sum() for s in surveys()])
    assert (everywhere > 1).mean() > 0.3
    assert (everywhere < len(REPRESENTATIONS)).mean() > 0.8
    missing = [(drawn(seed).marginal(("y", "d")).table == 0).any() for seed in range(len(surveys()))]
    assert 0.2 < np.mean(missing) < 1


def test_the_table_has_a_row_of_six_cells_for_every_claim(checked: dict[str, Claim]) -> None:
    lines = table(list(checked.values())).splitlines()
    assert len(lines) == 2 + len(checked)
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {7}
    for line, claim in zip(lines[2:], checked.values(), strict=True):
        assert line.startswith(f"| {claim.name} |")
        assert ("| **no** |" in line) == (not claim.holds)


def test_a_reward_for_domain_information_breaks_proposition_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(global_invariance, "LAMBDAS", (-1.0,))
    assert not global_invariance.domain_expansion().holds


def test_the_distributions_of_other_pairs_break_proposition_2(monkeypatch: pytest.MonkeyPatch) -> None:
    with_surveys(monkeypatch, [dataclasses.replace(s, same=np.roll(s.same, 1, axis=1)) for s in surveys()])
    assert not global_invariance.pairwise_invariance().holds


def test_a_pair_left_out_breaks_theorem_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the pair (0, 1) is never penalised, a set of domains is accepted as invariant although it is not."""
    free = [dataclasses.replace(s, penalties=s.penalties * (np.arange(6) > 0)) for s in surveys()]
    with_surveys(monkeypatch, free)
    assert not global_invariance.shrinking_set().holds


def test_penalties_that_vanish_with_more_domains_break_theorem_2(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets that are not nested: a larger set without the pairs of the smaller one."""
    monkeypatch.setattr(global_invariance, "NESTED", (((0, 1), (1, 2, 3)), ((2, 3), (0, 1, 2))))
    assert not global_invariance.monotonicity().holds


def test_neighbouring_pairs_suffice_only_if_no_domain_lacks_a_label() -> None:
    """The middle domain lacks label 1, so nothing connects the outer two for it."""
    laws = np.array([[[1, 1], [1, 1], [1, 1]], [[3, 1], [2, 2], [1, 3]]])
    for sizes, chained in ((np.array([[1, 1, 1], [1, 0, 1]]), True), (np.array([[1, 1, 1], [1, 1, 1]]), False)):
        z = Joint.of(laws * sizes[..., None], ("y", "d", "z"))
        assert (same_conditionals(z, 0, 1) and same_conditionals(z, 1, 2)) == chained
        assert not same_conditionals(z, 0, 2)
        assert not independent(z, "z", "d", "y")


def test_one_predictive_feature_for_all_domains_loses_nothing() -> None:
    """The theorem's second premise: without different predictive structures nothing is lost."""
    shared = constructive((0.5, 0.25, 0.5, 0.25)).given("d", (0, 1))
    assert best_global(shared, FUNCTIONS) == pytest.approx(1, abs=1e-12)


def test_the_first_feature_is_all_that_is_invariant_in_its_subset() -> None:
    """Biased noise cannot be preserved: of 15 functions, only the constant and X1 remain."""
    subset = constructive((0.5, 0.25, 0.5, 0.25)).given("s", (0,))
    kept = [z for z in FUNCTIONS if independent(subset.mapped("x", z, "z"), "z", "d", "y")]
    assert kept == [(0, 0, 0, 0), (0, 0, 1, 1)]


def test_equal_inputs_in_both_domains_restore_the_conclusion() -> None:
    """The same posteriors as in the counterexample, but one p(x): all information is preserved."""
    world = covariate_shift()
    same = Joint.of(world.table[:, [0, 0, 2, 2]] * np.eye(2)[[0, 0, 1, 1]][:, :, None], world.axes)
    kept = best_by_subset(same, FUNCTIONS)
    assert kept == pytest.approx(mutual_information(world.given("d", (0, 2)), "x", "y", "s"), abs=1e-12)
    assert len(invariant(world.given("s", (0,)), FUNCTIONS)) == 1, (
        "in the counterexample, only the constant is preserved"
    )
