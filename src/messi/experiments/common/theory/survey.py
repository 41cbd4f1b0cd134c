"""A world seen through every deterministic representation of its input.

The objective of a set K of domains is I(z;y) less lambda times the sum of I(z;d|y, d in {i,j}) over its pairs.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from messi.diagnostics.information import Joint, independent, mutual_information
from messi.experiments.common.theory.worlds import DOMAIN_SETS, PAIRS, REPRESENTATIONS, drawn, same_conditionals

WORLDS = 25
ZERO = 1e-12
"""Rounding leaves less than 1e-15; the smallest information above zero is told in the table."""


@dataclass(frozen=True)
class Survey:
    """A world seen through R representations."""

    label_information: NDArray[np.float64]
    """[R] I(z;y) over all domains."""
    penalties: NDArray[np.float64]
    """[R, pairs] I(z;d|y, d in {i,j})."""
    same: NDArray[np.bool_]
    """[R, pairs] whether p(z|y,d) is the same in both domains."""
    invariant: NDArray[np.bool_]
    """[R, domain sets] whether z and d are independent given y within the set."""

    def penalty(self, domains: tuple[int, ...]) -> NDArray[np.float64]:
        """Return the sum over the pairs of a set: [R]."""
        inside = [set(pair) <= set(domains) for pair in PAIRS]
        return np.asarray(self.penalties[:, inside].sum(1))

    def exact(self, domains: tuple[int, ...]) -> NDArray[np.bool_]:
        """Return which representations have no penalty: [R]."""
        return self.penalty(domains) < ZERO

    def objective(self, domains: tuple[int, ...], weight: float) -> NDArray[np.float64]:
        """Return the paper's objective, with I(z;y) over all domains whatever the set: [R]."""
        return np.asarray(self.label_information - weight * self.penalty(domains))


def survey(world: Joint) -> Survey:
    """Compute everything about a world of four domains and five inputs."""
    seen = [world.mapped("x", representation, "z") for representation in REPRESENTATIONS]
    return Survey(
        label_information=np.array([mutual_information(z, "z", "y") for z in seen]),
        penalties=np.array([[mutual_information(z.given("d", p), "z", "d", "y") for p in PAIRS] for z in seen]),
        same=np.array([[same_conditionals(z, *p) for p in PAIRS] for z in seen]),
        invariant=np.array([[independent(z.given("d", k), "z", "d", "y") for k in DOMAIN_SETS] for z in seen]),
    )


@cache
def surveys() -> tuple[Survey, ...]:
    """Return the drawn worlds' surveys."""
    return tuple(survey(drawn(seed)) for seed in range(WORLDS))
