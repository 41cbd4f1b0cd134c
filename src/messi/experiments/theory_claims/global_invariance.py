"""Propositions 1 and 2, Theorems 1 and 2: one representation for all domains."""

import numpy as np
from numpy.typing import NDArray

from messi.diagnostics.information import mutual_information
from messi.experiments.theory_claims.worlds import (
    DOMAIN_SETS,
    NESTED,
    PAIRS,
    REPRESENTATIONS,
    WORLDS,
    ZERO,
    Claim,
    Survey,
    label_shift,
    surveys,
)

LAMBDAS = (0.1, 1.0, 10.0, 100.0)
"""Weights of the penalty; with the last one, every optimizer of the random worlds is invariant."""
_FAMILY = f"all {len(REPRESENTATIONS)} functions of 5 inputs, {WORLDS} random worlds of 4 domains"


def global_claims() -> list[Claim]:
    """Check the statements about one representation for all domains."""
    return [
        domain_expansion(),
        moving_label_information(),
        pairwise_invariance(),
        shrinking_set(),
        monotonicity(),
        without_exact_optimizers(),
    ]


def domain_expansion() -> Claim:
    """Proposition 1."""
    cases = [(s, weight, k, larger) for s in surveys() for weight in LAMBDAS for k, larger in NESTED]
    before = np.array([s.objective(k, weight) for s, weight, k, _ in cases])
    after = np.array([s.objective(larger, weight) for s, weight, _, larger in cases])
    growth, best = (after - before).max(), after.max(1) - before.max(1)
    return Claim(
        name="Proposition 1 (domain expansion)",
        statement="More domains never raise the objective of a representation, nor its maximum, "
        "if I(Z;Y) is taken over one distribution for all domain sets.",
        check=f"{_FAMILY}, {len(NESTED)} nested pairs of domain sets, {len(LAMBDAS)} values of lambda",
        cases=before.size,
        numbers=f"largest growth {max(0.0, growth):.0e} of an objective, {max(0.0, best.max()):.0e} of a maximum "
        f"(rounding); mean change of a maximum {best.mean():.3f}",
        holds=bool(growth < ZERO and best.max() < ZERO),
    )


def moving_label_information() -> Claim:
    """Proposition 1 and Theorem 2 with I(Z;Y) over the training domains only."""
    world = label_shift().mapped("x", (0, 1), "z")
    fewer, more = (mutual_information(world.given("d", k), "z", "y") for k in ((0, 1), (0, 1, 2)))
    penalty = mutual_information(world, "z", "d", "y")
    return Claim(
        name="Proposition 1 and Theorem 2, I(Z;Y) over the domains in K",
        statement="The same holds if I(Z;Y) is taken over the domains in K only, as in training on these domains.",
        check="counterexample: X = Y in three domains, with P(Y=1) = 0.1, 0.1 and 0.9; Z = X is invariant",
        cases=1,
        numbers=f"K = {{1,2}}: {fewer:.3f}; K = {{1,2,3}}: {more:.3f}; I(Z;D|Y) = {penalty:.1g}; "
        "required: one distribution for all K",
        holds=more <= fewer + ZERO,
    )


def pairwise_invariance() -> Claim:
    """Proposition 2."""
    penalties = np.concatenate([s.penalties for s in surveys()]).ravel()
    same = np.concatenate([s.same for s in surveys()]).ravel()
    return Claim(
        name="Proposition 2 (pairwise invariance)",
        statement="I(Z;D | Y, D in {i,j}) = 0 if and only if P(Z|Y,D=i) = P(Z|Y,D=j) "
        "for every label that both domains have; a label that one domain lacks is not constrained.",
        check=f"{_FAMILY}, {len(PAIRS)} pairs; the distributions are compared directly",
        cases=len(same),
        numbers=f"{same.sum()} equal, with at most {abs(penalties[same]).max():.0e}; "
        f"{(~same).sum()} unequal, with at least {penalties[~same].min():.1e}",
        holds=bool((same == (penalties < ZERO)).all()),
    )


def shrinking_set() -> Claim:
    """Theorem 1, and the set that gives it its name."""
    agree = [(s.exact(k) == s.invariant[:, i]).all() for s in surveys() for i, k in enumerate(DOMAIN_SETS)]
    shrinks = [(s.exact(k) | ~s.exact(larger)).all() for s in surveys() for k, larger in NESTED]
    means = [np.mean([s.exact(tuple(range(size))).sum() for s in surveys()]) for size in range(1, 5)]
    return Claim(
        name="Theorem 1 (shrinking set)",
        statement="All pairwise terms in K vanish if and only if Z and D are independent given Y over K, "
        "so the set of invariant representations can only shrink as domains are added.",
        check=f"{_FAMILY}, {len(DOMAIN_SETS)} domain sets, {len(NESTED)} nested pairs of them",
        cases=len(agree) * len(REPRESENTATIONS),
        numbers=f"invariant representations, mean for 1, 2, 3, 4 domains: {', '.join(f'{m:.1f}' for m in means)}",
        holds=all(agree) and all(shrinks),
    )


def most_label_information(s: Survey, domains: tuple[int, ...]) -> float:
    """Return the largest I(z;y) among the representations that are invariant over a domain set."""
    return float(s.label_information[s.exact(domains)].max())


def optimizers(s: Survey, domains: tuple[int, ...], weight: float) -> NDArray[np.bool_]:
    """Return which representations maximise the objective; if some of them are invariant, only those."""
    objective = s.objective(domains, weight)
    best: NDArray[np.bool_] = objective > objective.max() - ZERO
    invariant: NDArray[np.bool_] = best & s.exact(domains)
    return invariant if invariant.any() else best


def growths(*, exact: bool) -> list[float]:
    """Return the minimal growth of I(z*;y) from K to a larger set.

    ``exact`` selects the cases in which all sets have an exactly invariant optimizer, or all others.
    """
    changes = []
    for s in surveys():
        for weight in LAMBDAS:
            found = {k: optimizers(s, k, weight) for k in DOMAIN_SETS}
            if all(s.exact(k)[best].all() for k, best in found.items()) == exact:
                information = {k: s.label_information[best] for k, best in found.items()}
                changes += [float(information[larger].min() - information[k].max()) for k, larger in NESTED]
    return changes


def monotonicity() -> Claim:
    """Theorem 2."""
    constrained = [
        most_label_information(s, larger) - most_label_information(s, k) for s in surveys() for k, larger in NESTED
    ]
    changes = growths(exact=True)
    means = [np.mean([most_label_information(s, tuple(range(size))) for s in surveys()]) for size in range(1, 5)]
    return Claim(
        name="Theorem 2 (monotonicity)",
        statement="If every domain set has an exactly invariant optimizer, I(Z*;Y) does not grow with the set; "
        "nor does the largest I(Z;Y) among invariant representations, even without that premise.",
        check=f"{_FAMILY}, {len(LAMBDAS)} values of lambda for which the premise holds, {len(NESTED)} nested pairs",
        cases=len(changes) + len(constrained),
        numbers=f"largest I(Z;Y) among invariant ones, mean for 1, 2, 3, 4 domains: "
        f"{', '.join(f'{m:.3f}' for m in means)}; largest growth {max(0.0, *changes, *constrained):.1g}",
        holds=max(*changes, *constrained) < ZERO,
    )


def without_exact_optimizers() -> Claim:
    """Theorem 2 with a penalty that is too weak to make the optimizer invariant."""
    changes = growths(exact=False)
    grown = sum(change > 1e-6 for change in changes)
    return Claim(
        name="Theorem 2 without its premise",
        statement="I(Z*;Y) does not grow with the domain set even if the optimizers are not exactly invariant.",
        check=f"{_FAMILY}, values of lambda for which some optimizer is not invariant; counterexamples are counted",
        cases=len(changes),
        numbers=f"it grows in {grown} cases, by up to {max(changes):.3f}; required: a sufficiently large lambda",
        holds=grown == 0,
    )
