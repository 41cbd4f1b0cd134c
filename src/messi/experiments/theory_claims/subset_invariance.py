"""The lemma, its corollary and Theorem 3: one representation for each subset of the domains."""

from collections.abc import Sequence

import numpy as np

from messi.diagnostics.information import Joint, entropy, independent, mutual_information, partitions
from messi.experiments.theory_claims.worlds import (
    PAIRS,
    REPRESENTATIONS,
    SUBSETS,
    ZERO,
    Claim,
    constructive,
    covariate_shift,
    drawn,
    parity,
    same_conditionals,
    with_subsets,
)

WORLDS = 10
BIASED = (0.5, 0.25, 0.5, 0.25)
"""The probability that the noise of a domain is 1, if the domains of a subset differ in it."""


def subset_claims() -> list[Claim]:
    """Check the statements about one representation for each subset."""
    return [
        *lemma_and_corollary(),
        constructive_example(),
        one_factor_is_lost(),
        label_from_input(),
        never_less(),
        subset_of_the_input(),
        same_posterior(),
    ]


def lemma_and_corollary() -> list[Claim]:
    """Check both on worlds in which the subset is a separate variable, not a function of the domain."""
    zero, same, pairwise = [], [], []
    for world in (drawn(seed, subsets=2).given("s", (m,)) for seed in range(WORLDS) for m in range(2)):
        present = np.flatnonzero(world.marginal("d").table)
        pairs = [pair for pair in PAIRS if set(pair) <= set(present)]
        for z in (world.mapped("x", representation, "z") for representation in REPRESENTATIONS):
            zero.append(mutual_information(z, "z", "d", "y") < ZERO)
            same.append(all(same_conditionals(z, *pair) for pair in pairs))
            pairwise.append(sum(mutual_information(z.given("d", pair), "z", "d", "y") for pair in pairs) < ZERO)
    family = f"all 52 functions of 5 inputs, {WORLDS} random worlds of 4 domains, 2 subsets; S is not a function of D"
    numbers = f"{sum(zero)} invariant, {len(zero) - sum(zero)} not"
    return [
        Claim(
            name="Lemma (subset-conditioned invariance)",
            statement="I(Z;D | Y, S=m) = 0 if and only if P(Z|Y,D=i,S=m) = P(Z|Y,D=j,S=m) for all domains of the "
            "subset and every label that both have in it.",
            check=family,
            cases=len(zero),
            numbers=numbers,
            holds=zero == same,
        ),
        Claim(
            name="Corollary",
            statement="I(Z;D | Y, S=m) = 0 if and only if every pairwise term within the subset is 0.",
            check=family,
            cases=len(zero),
            numbers=numbers,
            holds=zero == pairwise,
        ),
    ]


def invariant(world: Joint, functions: Sequence[tuple[int, ...]]) -> list[Joint]:
    """Return the world with z instead of x, for every z that is independent of the domain given the label."""
    seen = (world.mapped("x", function, "z") for function in functions)
    return [z for z in seen if independent(z, "z", "d", "y")]


def best_global(world: Joint, functions: Sequence[tuple[int, ...]]) -> float:
    """Return the largest I(z;y|s) among globally invariant representations."""
    return max(mutual_information(z, "z", "y", "s") for z in invariant(world, functions))


def best_by_subset(world: Joint, functions: Sequence[tuple[int, ...]]) -> float:
    """Return the mean over subsets of the largest I(z;y|s=m) among representations invariant within the subset."""
    shares = world.marginal("s").table
    worlds = [world.given("s", (m,)) for m in range(len(shares))]
    best = [max(mutual_information(z, "z", "y") for z in invariant(part, functions)) for part in worlds]
    return float(shares @ best)


def constructive_example() -> Claim:
    """Theorem 3 as it is proved: by an example."""
    functions = tuple(partitions(4))
    worlds = (constructive(), constructive(BIASED))
    everything, lost = ([best(world, functions) for world in worlds] for best in (best_by_subset, best_global))
    return Claim(
        name="Theorem 3, the constructive example",
        statement="In the example, global invariance loses label information that one representation for each subset "
        "preserves, if the subset is known when the label is predicted.",
        check="all 15 functions of the two features; noise is fair, or biased in one domain of each subset",
        cases=2 * len(functions),
        numbers=f"I(Z;Y|S), fair and biased noise: by subset {everything[0]:.3f} and {everything[1]:.3f}, "
        f"global {lost[0]:.3f} and {lost[1]:.3f}",
        holds=all(g < b - ZERO for g, b in zip(lost, everything, strict=True)),
    )


def one_factor_is_lost() -> Claim:
    """The sentence of the proof that a globally invariant representation must suppress one of the two features."""
    world = constructive()
    added = world.mapped("x", (0, 1, 1, 2), "z")
    kept = [mutual_information(added.given("s", (m,)), "z", "y") for m in range(2)]
    of_input = mutual_information(world, "x", "y")
    return Claim(
        name="Theorem 3, a sentence of its proof",
        statement="In the example a globally invariant representation must suppress one of the two features.",
        check="counterexample: Z = X1 + X2 with fair noise; one of the 15 functions of the example",
        cases=1,
        numbers=f"I(Z;D|Y) = {abs(mutual_information(added, 'z', 'd', 'y')):.1g}, I(Z;Y|S=1) = {kept[0]:.3f}, "
        f"I(Z;Y|S=2) = {kept[1]:.3f}; I(Z;Y) = {mutual_information(added, 'z', 'y'):.3f} equals "
        f"I(X;Y) = {of_input:.3f}: the gain of the subsets comes from knowing S",
        holds=not independent(added, "z", "d", "y") or min(kept) < ZERO,
    )


def label_from_input() -> Claim:
    """A loss requires labels that the input does not determine, or a restricted family of representations."""
    functions = tuple(partitions(8))
    world = constructive(BIASED, style=True)
    best, most = best_global(world, functions), entropy(world, "y", "s")
    return Claim(
        name="Theorem 3, if the input determines the label",
        statement="If the label is a function of the input, as in the example with a visible style, "
        "the best globally invariant representation loses nothing.",
        check=f"all {len(functions):,} functions of two features and a style that shows the subset, biased noise",
        cases=len(functions),
        numbers=f"largest I(Z;Y|S) {best:.3f} of H(Y|S) = {most:.3f}",
        holds=abs(best - most) < ZERO,
    )


def never_less() -> Claim:
    """Theorem 3 in general: a globally invariant representation is invariant in every subset."""
    worlds = [with_subsets(drawn(seed)) for seed in range(2 * WORLDS)]
    gains = [best_by_subset(world, REPRESENTATIONS) - best_global(world, REPRESENTATIONS) for world in worlds]
    return Claim(
        name="Theorem 3, in general",
        statement="If the subset is a function of the domain, the best representations by subset never preserve "
        "less label information than the best globally invariant one.",
        check=f"all 52 functions of 5 inputs, {len(worlds)} random worlds with the subsets {{1,2}} and {{3,4}}",
        cases=len(worlds) * len(REPRESENTATIONS),
        numbers=f"gain in I(Z;Y|S): mean {np.mean(gains):.3f}, smallest {min(gains):.1g}, largest {max(gains):.3f}",
        holds=min(gains) > -ZERO,
    )


def subset_of_the_input() -> Claim:
    """The same with a subset that depends on the input, like the choice of a router."""
    world, functions = parity(), tuple(partitions(4))
    over_all, by_subset = best_global(world, functions), best_by_subset(world, functions)
    return Claim(
        name="Theorem 3, subsets that depend on the input",
        statement="The same holds if the subset depends on the input, like the choice of a router.",
        check="counterexample: all 15 functions of 4 inputs; S is the parity of the domain and an error in the input",
        cases=len(functions),
        numbers=f"largest I(Z;Y|S): global {over_all:.3f}, by subset {by_subset:.3f}; required: S is a function of D",
        holds=by_subset > over_all - ZERO,
    )


def same_posterior() -> Claim:
    """Theorem 3 under the premise stated in the paper."""
    world, functions = covariate_shift(), tuple(partitions(4))
    spread = max(mutual_information(world.given("d", subset), "y", "d", "x") for subset in SUBSETS)
    kept, there = best_by_subset(world, functions), mutual_information(world, "x", "y", "s")
    return Claim(
        name="Theorem 3, its premise as stated",
        statement="If P(Y|X,D) is equal within each subset, representations by subset can preserve all of I(X;Y|S).",
        check=f"counterexample: all {len(functions)} functions of 4 inputs; P(Y|X) is equal in a subset, P(X) is not",
        cases=len(functions),
        numbers=f"I(Y;D|X) within a subset {abs(spread):.1g}; I(X;Y|S) = {there:.3f}, best by subset {kept:.3f}; "
        "required: P(Z|Y,D) is equal within a subset for a sufficient Z",
        holds=abs(kept - there) < ZERO,
    )
