"""A design that measures eleven factors at two levels in twelve runs (Plackett and Burman, 1946).

Every factor is high in half of the runs and independent of the others. Interactions of two factors are mixed into the
effects of the others. Seeds 1, 3, ... therefore run the twelve opposite combinations, which separates them from the
effects.
"""

import itertools
from collections.abc import Iterable

_FIRST_ROW = "++-+++---+-"


def design(factors: Iterable[str]) -> list[frozenset[str]]:
    """Return the factors that are high in each run: twelve for even seeds, the last with none, and their opposites."""
    names, row = list(factors), _FIRST_ROW
    shifted = [row[-shift:] + row[:-shift] if shift else row for shift in range(len(row))]
    even = [frozenset(itertools.compress(names, (sign == "+" for sign in signs))) for signs in (*shifted, "-" * 11)]
    return even + [frozenset(names) - high for high in even]


def runs_of(factors: Iterable[str], seed: int) -> dict[str, frozenset[str]]:
    """Return the twelve runs of a block by name, with the factors that are high in each."""
    numbered = list(enumerate(design(factors), 1))
    return {f"run {number}": high for number, high in (numbered[12:] if seed % 2 else numbered[:12])}
