"""Exact information quantities of finite joint distributions, in bits.

A distribution is a table of weights with a name for every axis. Nothing is estimated: every sum runs over the whole
table, in float64. Entries of probability 0 contribute nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from messi.core.errors import MessiError, unknown_name

Table = NDArray[np.float64]
Axes = str | tuple[str, ...]
"""The name of one axis, or the names of several."""


@dataclass(frozen=True)
class Joint:
    """A joint distribution: the probability of every combination of values."""

    table: Table
    """One axis for each name; the entries sum to 1."""
    axes: tuple[str, ...]

    @classmethod
    def of(cls, weights: ArrayLike, axes: tuple[str, ...]) -> "Joint":
        """Normalise weights, a numpy array or a CPU tensor, to a distribution."""
        table = np.asarray(weights, dtype=np.float64)
        if table.ndim != len(axes) or len(set(axes)) < len(axes):
            raise MessiError(f"axes must be {table.ndim} different names, one for each axis of weights, not {axes}.")
        if not np.isfinite(table).all() or (table < 0).any() or table.sum() == 0:
            raise MessiError("weights must be finite and not negative, and one of them above 0.")
        return cls(table / table.sum(), axes)

    def marginal(self, axes: Axes) -> "Joint":
        """Return the distribution of some of the variables, in the order given."""
        names = _names(axes)
        others = tuple(i for i, name in enumerate(self.axes) if name not in names)
        kept = [name for name in self.axes if name in names]
        order = [kept.index(name) for name in names if self.index(name) >= 0]
        return Joint(self.table.sum(axis=others).transpose(order), names)

    def given(self, axis: str, values: Sequence[int]) -> "Joint":
        """Return the distribution under the event that a variable has one of some values; others get probability 0."""
        place = self.index(axis)
        inside = np.isin(np.arange(self.table.shape[place]), values)
        chosen = self.table * inside.reshape([-1 if i == place else 1 for i in range(self.table.ndim)])
        if chosen.sum() == 0:
            raise MessiError(f"The event that {axis} is one of {list(values)} has probability 0.")
        return Joint(chosen / chosen.sum(), self.axes)

    def mapped(self, axis: str, images: Sequence[int], name: str) -> "Joint":
        """Replace a variable by a function of it: value i becomes ``images[i]``."""
        place = self.index(axis)
        if len(images) != self.table.shape[place]:
            raise MessiError(f"images must have one entry for each of the {self.table.shape[place]} values of {axis}.")
        indicator = np.eye(max(images) + 1)[list(images)]
        table = np.moveaxis(np.tensordot(self.table, indicator, axes=(place, 0)), -1, place)
        return Joint(table, (*self.axes[:place], name, *self.axes[place + 1 :]))

    def index(self, axis: str) -> int:
        """Return which axis of the table has this name."""
        if axis not in self.axes:
            raise unknown_name("axis", axis, self.axes)
        return self.axes.index(axis)


def entropy(joint: Joint, axes: Axes, given: Axes = ()) -> float:
    """Return H(axes | given)."""
    conditions = _names(given)
    return _entropy(joint, (*_names(axes), *conditions)) - _entropy(joint, conditions)


def mutual_information(joint: Joint, first: Axes, second: Axes, given: Axes = ()) -> float:
    """Return I(first; second | given), as the mean of log p(a,b|c) / (p(a|c) p(b|c)), which is accurate even near 0."""
    together, product = _with_product(joint, first, second, given)
    possible = together > 0
    return float((together[possible] * np.log2(together[possible] / product[possible])).sum())


def independent(joint: Joint, first: Axes, second: Axes, given: Axes = (), *, tolerance: float = 1e-12) -> bool:
    """Return whether p(a,b,c) = p(a|c) p(b|c) p(c) for all values: the definition, without a logarithm."""
    together, product = _with_product(joint, first, second, given)
    return bool(np.abs(together - product).max() <= tolerance)


def partitions(size: int) -> Iterator[tuple[int, ...]]:
    """Yield every way to merge ``size`` values: all functions of a variable, up to the names of their values."""
    if size == 0:
        yield ()
        return
    for shorter in partitions(size - 1):
        for block in range(max(shorter, default=-1) + 2):
            yield (*shorter, block)


def _with_product(joint: Joint, first: Axes, second: Axes, given: Axes) -> tuple[Table, Table]:
    """Return p(a,b,c) and p(a,c) p(b,c) / p(c) as tables [a, b, c]."""
    a, b, c = _names(first), _names(second), _names(given)
    marginal = joint.marginal((*a, *b, *c)).table
    rows, columns = int(np.prod(marginal.shape[: len(a)])), int(np.prod(marginal.shape[len(a) : len(a) + len(b)]))
    together = marginal.reshape(rows, columns, -1)
    condition = together.sum((0, 1))
    scale = np.divide(1.0, condition, out=np.zeros_like(condition), where=condition > 0)
    return together, together.sum(1, keepdims=True) * together.sum(0, keepdims=True) * scale


def _entropy(joint: Joint, axes: tuple[str, ...]) -> float:
    probabilities = joint.marginal(axes).table
    possible = probabilities[probabilities > 0]
    return float(-(possible * np.log2(possible)).sum())


def _names(axes: Axes) -> tuple[str, ...]:
    return (axes,) if isinstance(axes, str) else axes
