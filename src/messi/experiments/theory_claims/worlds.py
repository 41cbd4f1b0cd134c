"""Finite worlds, joint distributions of a label y, a domain d, an input x and sometimes a subset s, and their surveys.

The weights of random worlds are small integers. Equal probabilities therefore differ only by rounding, unequal ones by
far more, and invariant representations are not as rare as with real numbers. A survey evaluates a world for every
deterministic representation z of its input. The objective of a set K of domains is I(z;y) minus lambda times the sum of
I(z;d|y, d in {i,j}) over its pairs.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from messi.diagnostics.information import Joint, independent, mutual_information, partitions

DOMAINS, LABELS, VALUES = 4, 2, 5
SUBSETS = ((0, 1), (2, 3))
"""The two subsets of the domains."""
REPRESENTATIONS = tuple(partitions(VALUES))
"""Every deterministic representation of an input with five values: 52."""
DOMAIN_SETS = tuple(k for size in range(1, DOMAINS + 1) for k in itertools.combinations(range(DOMAINS), size))
NESTED = tuple((k, larger) for k in DOMAIN_SETS for larger in DOMAIN_SETS if set(k) < set(larger))
PAIRS = tuple(itertools.combinations(range(DOMAINS), 2))
WORLDS = 25
ZERO = 1e-12
"""Rounding errors are below 1e-15; the table states the smallest information above zero."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A statement, how it was checked, and whether it holds."""

    name: str
    statement: str
    """One sentence."""
    check: str
    """What was computed, and for which cases."""
    cases: int
    """The number of cases."""
    numbers: str
    """The results; information is in bits."""
    holds: bool


def drawn(seed: int, *, subsets: int = 1) -> Joint:
    """Draw a world p(y, d, s, x) in which some labels do not occur in some domains.

    Half of the class-conditional distributions equal those of the first domain, the others are drawn independently.
    """
    rng = np.random.default_rng(seed)
    shape = (LABELS, DOMAINS, subsets)
    conditionals = rng.multinomial(4, [1 / VALUES] * VALUES, size=shape)
    conditionals = np.where(rng.random((*shape, 1)) < 0.5, conditionals[:, :1], conditionals)
    sizes = rng.integers(0, 4, size=shape)
    sizes[:, sizes.sum(axis=(0, 2)) == 0] = 1
    return Joint.of(sizes[..., None] * conditionals, ("y", "d", "s", "x"))


def with_subsets(world: Joint) -> Joint:
    """Set the subset of a world to that of its domain: the first two, or the last two."""
    table = world.marginal(("y", "d", "x")).table
    membership = np.array([[d in subset for subset in SUBSETS] for d in range(DOMAINS)])
    return Joint.of(table[:, :, None] * membership[:, :, None], ("y", "d", "s", "x"))


def constructive(noise: Sequence[float] = (0.5,) * DOMAINS, *, style: bool = False) -> Joint:
    """Return the example of the paper's proof as p(y, d, s, x): two features, or three with a visible style.

    In domains 0 and 1 the first feature equals the label, in 2 and 3 the second; the other feature is 1 with the
    probability ``noise`` of the domain. The style is the subset.
    """
    table = np.zeros((LABELS, DOMAINS, 2, 2, 2, 2))
    for y, d, other in itertools.product(range(LABELS), range(DOMAINS), range(2)):
        s = d // 2
        features = (other, y) if s else (y, other)
        table[(y, d, s, *features, s)] = noise[d] if other else 1 - noise[d]
    inputs = table.reshape(LABELS, DOMAINS, 2, 8) if style else table.sum(-1).reshape(LABELS, DOMAINS, 2, 4)
    return Joint.of(inputs, ("y", "d", "s", "x"))


def label_shift() -> Joint:
    """Return three domains in which the input equals the label; the rare label is the frequent one in the third."""
    rare = np.array([0.1, 0.1, 0.9])
    return Joint.of(np.stack([np.diag([1 - p, p]) for p in rare], axis=1), ("y", "d", "x"))


def covariate_shift() -> Joint:
    """Return p(y, d, s, x) with one p(y | x) per subset and two p(x) within it: clear or ambiguous inputs."""
    positive = np.array([0.1, 0.4, 0.6, 0.9])
    table = np.zeros((LABELS, DOMAINS, 2, 4))
    for d in range(DOMAINS):
        posterior = positive if d < 2 else positive[::-1]
        inputs = np.array([1, 3, 3, 1] if d % 2 else [3, 1, 1, 3])
        table[:, d, d // 2] = np.stack([1 - posterior, posterior]) * inputs
    return Joint.of(table, ("y", "d", "s", "x"))


def parity() -> Joint:
    """Return p(y, d, s, x): x shows the label, incorrectly in a quarter of the cases, and the subset.

    In one domain the subset is 1 if the label is shown incorrectly, in the other if it is shown correctly.
    """
    table = np.zeros((LABELS, 2, 2, 2, 2))
    for y, d, wrong in itertools.product(range(LABELS), range(2), range(2)):
        s = wrong ^ d
        table[y, d, s, y ^ wrong, s] = 1 if wrong else 3
    return Joint.of(table.reshape(LABELS, 2, 2, 4), ("y", "d", "s", "x"))


def same_conditionals(world: Joint, i: int, j: int) -> bool:
    """Return whether p(z | y, d = i) = p(z | y, d = j) for every label that both domains have."""
    table = world.marginal(("y", "d", "z")).table[:, (i, j)]
    table = table[(table.sum(-1) > 0).all(1)]
    laws: NDArray[np.float64] = table / table.sum(-1, keepdims=True)
    return bool(np.abs(laws[:, 0] - laws[:, 1]).max(initial=0) < 1e-12)


@dataclass(frozen=True)
class Survey:
    """A world under R representations."""

    label_information: NDArray[np.float64]
    """[R] I(z;y) over all domains."""
    penalties: NDArray[np.float64]
    """[R, pairs] I(z;d|y, d in {i,j})."""
    same: NDArray[np.bool_]
    """[R, pairs] whether p(z|y,d) is equal in both domains."""
    invariant: NDArray[np.bool_]
    """[R, domain sets] whether z and d are independent given y within the set."""

    def penalty(self, domains: tuple[int, ...]) -> NDArray[np.float64]:
        """Return the sum of the penalties over the pairs of a set: [R]."""
        inside = [set(pair) <= set(domains) for pair in PAIRS]
        return np.asarray(self.penalties[:, inside].sum(1))

    def exact(self, domains: tuple[int, ...]) -> NDArray[np.bool_]:
        """Return which representations have zero penalty: [R]."""
        return self.penalty(domains) < ZERO

    def objective(self, domains: tuple[int, ...], weight: float) -> NDArray[np.float64]:
        """Return the paper's objective, with I(z;y) over all domains regardless of the set: [R]."""
        return np.asarray(self.label_information - weight * self.penalty(domains))


def survey(world: Joint) -> Survey:
    """Survey a world of four domains and five inputs."""
    seen = [world.mapped("x", representation, "z") for representation in REPRESENTATIONS]
    return Survey(
        label_information=np.array([mutual_information(z, "z", "y") for z in seen]),
        penalties=np.array([[mutual_information(z.given("d", p), "z", "d", "y") for p in PAIRS] for z in seen]),
        same=np.array([[same_conditionals(z, *p) for p in PAIRS] for z in seen]),
        invariant=np.array([[independent(z.given("d", k), "z", "d", "y") for k in DOMAIN_SETS] for z in seen]),
    )


@cache
def surveys() -> tuple[Survey, ...]:
    """Return the surveys of all random worlds."""
    return tuple(survey(drawn(seed)) for seed in range(WORLDS))
