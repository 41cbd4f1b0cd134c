"""Information quantities against values known by hand, the laws, and a plain loop over the definition."""

import itertools
import math

import numpy as np
import pytest
import torch

from messi.core.errors import MessiError
from messi.diagnostics.information import Joint, entropy, independent, mutual_information, partitions

SEEDS = range(20)


def drawn(seed: int) -> Joint:
    """Return a random distribution of three variables with some impossible cells."""
    rng = np.random.default_rng(seed)
    return Joint.of(rng.random((3, 4, 2)) * (rng.random((3, 4, 2)) > 0.2), ("a", "b", "c"))


def by_loops(joint: Joint) -> float:
    """Return I(a; b | c) from its definition, value by value."""
    p, total = joint.table, 0.0
    for a, b, c in itertools.product(*map(range, p.shape)):
        if p[a, b, c] > 0:
            pc = p[:, :, c].sum()
            total += p[a, b, c] * math.log2(p[a, b, c] * pc / (p[a, :, c].sum() * p[:, b, c].sum()))
    return total


def test_a_fair_coin_has_one_bit_and_a_biased_one_less() -> None:
    assert entropy(Joint.of([1, 1], ("a",)), "a") == 1
    assert entropy(Joint.of([1, 3], ("a",)), "a") == pytest.approx(2 - 0.75 * math.log2(3), abs=1e-15)
    assert entropy(Joint.of([0, 7], ("a",)), "a") == 0


def test_a_binary_channel_that_erases_half_of_its_bits_carries_half_a_bit() -> None:
    joint = Joint.of([[1, 1, 0], [0, 1, 1]], ("sent", "received"))
    assert mutual_information(joint, "sent", "received") == pytest.approx(0.5, abs=1e-15)
    assert entropy(joint, "sent", given="received") == pytest.approx(0.5, abs=1e-15)


def test_two_coins_are_independent_until_their_parity_is_known() -> None:
    table = np.zeros((2, 2, 2))
    for a, b in itertools.product(range(2), range(2)):
        table[a, b, a ^ b] = 1
    joint = Joint.of(table, ("a", "b", "parity"))
    assert independent(joint, "a", "b")
    assert mutual_information(joint, "a", "b") == 0
    assert not independent(joint, "a", "b", given="parity")
    assert mutual_information(joint, "a", "b", given="parity") == 1
    assert mutual_information(joint, ("a", "b"), "parity") == 1


def test_conditional_information_matches_the_definition() -> None:
    for seed in SEEDS:
        assert mutual_information(drawn(seed), "a", "b", given="c") == pytest.approx(
            by_loops(drawn(seed)), abs=1e-13
        ), f"seed {seed}"


def test_the_laws_hold() -> None:
    for seed in SEEDS:
        joint = drawn(seed)
        information = mutual_information(joint, "a", "b", given="c")
        assert information > 0, f"seed {seed}"
        assert information == pytest.approx(mutual_information(joint, "b", "a", given="c"), abs=1e-13), f"seed {seed}"
        assert information == pytest.approx(entropy(joint, "a", "c") - entropy(joint, "a", ("b", "c")), abs=1e-13), (
            f"seed {seed}"
        )
        chain = mutual_information(joint, "a", "c") + information
        assert mutual_information(joint, "a", ("b", "c")) == pytest.approx(chain, abs=1e-13), f"seed {seed}"
        assert entropy(joint, ("a", "b")) == pytest.approx(entropy(joint, "a") + entropy(joint, "b", "a"), abs=1e-13), (
            f"seed {seed}"
        )


def test_no_function_of_a_variable_has_more_information_than_the_variable() -> None:
    for seed in SEEDS:
        joint = drawn(seed)
        before = mutual_information(joint, "a", "b", given="c")
        after = [mutual_information(joint.mapped("b", g, "g"), "a", "g", given="c") for g in partitions(4)]
        assert max(after) == pytest.approx(before, abs=1e-13), f"seed {seed}: the identity is one of the functions"
        assert min(after) == pytest.approx(0, abs=1e-15), f"seed {seed}: a constant is another"
        assert max(after) < before + 1e-13, f"seed {seed}"


def test_a_product_is_independent_and_a_slight_change_is_not() -> None:
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        table = np.einsum("ac,bc->abc", rng.random((3, 2)) + 0.1, rng.random((4, 2)) + 0.1)
        joint = Joint.of(table, ("a", "b", "c"))
        assert independent(joint, "a", "b", given="c"), f"seed {seed}"
        assert abs(mutual_information(joint, "a", "b", given="c")) < 1e-14, f"seed {seed}"
        table[0, 0, 0] *= 1 + 1e-6
        assert not independent(Joint.of(table, ("a", "b", "c")), "a", "b", given="c"), f"seed {seed}"


def test_a_marginal_has_the_requested_order() -> None:
    joint = drawn(0)
    marginal = joint.marginal(("c", "a"))
    assert marginal.axes == ("c", "a")
    np.testing.assert_allclose(marginal.table, joint.table.sum(1).T)


def test_conditioning_keeps_only_the_event_and_sums_to_one() -> None:
    joint = Joint.of([[1, 2], [3, 4], [5, 6]], ("a", "b")).given("a", (0, 2))
    np.testing.assert_allclose(joint.table, np.array([[1, 2], [0, 0], [5, 6]]) / 14)


def test_a_function_of_a_variable_adds_the_probabilities_of_what_it_merges() -> None:
    joint = Joint.of([[1, 2, 4], [8, 16, 32]], ("a", "b")).mapped("b", (0, 1, 0), "z")
    assert joint.axes == ("a", "z")
    np.testing.assert_allclose(joint.table, np.array([[5, 2], [40, 16]]) / 63)


def test_a_tensor_gives_the_same_as_an_array() -> None:
    weights = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64)
    np.testing.assert_array_equal(Joint.of(weights, ("a", "b")).table, Joint.of(weights.numpy(), ("a", "b")).table)


def test_the_number_of_functions_is_the_bell_number_and_all_are_different() -> None:
    for size, number in enumerate((1, 1, 2, 5, 15, 52, 203)):
        found = list(partitions(size))
        blocks = {frozenset(frozenset(np.flatnonzero(np.array(p) == b)) for b in set(p)) for p in found}
        assert len(found) == len(blocks) == number


@pytest.mark.parametrize(
    ("weights", "axes", "message"),
    [
        ([1, 1], ("a", "b"), "axes must be 1 different names"),
        ([[1]], ("a", "a"), "axes must be 2 different names"),
        ([1, -1], ("a",), "weights must be finite and not negative"),
        ([0, 0], ("a",), "one of them above 0"),
        ([1, math.nan], ("a",), "weights must be finite"),
    ],
)
def test_an_invalid_distribution_is_named(weights: list[float], axes: tuple[str, ...], message: str) -> None:
    with pytest.raises(MessiError, match=message):
        Joint.of(weights, axes)


def test_a_wrong_axis_event_or_function_is_named() -> None:
    joint = Joint.of([[1, 1], [0, 0]], ("label", "domain"))
    with pytest.raises(MessiError, match=r"no axis named 'lable'.*Did you mean 'label'"):
        entropy(joint, "lable")
    with pytest.raises(MessiError, match=r"label is one of \[1\] has probability 0"):
        joint.given("label", (1,))
    with pytest.raises(MessiError, match="one entry for each of the 2 values of domain"):
        joint.mapped("domain", (0,), "z")
