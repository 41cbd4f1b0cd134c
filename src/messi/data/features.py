"""From raw features to the input of an encoder: fill in missing values, encode categories, standardise.

Everything that this needs is measured on the training part and stored with the model.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from messi.core.batch import Column, InputSpec
from messi.core.errors import MessiError
from messi.core.text import first_few
from messi.data.examples import Examples, Scaling, require_finite
from messi.data.images import Images

_CHUNK = 16_384
"""Rows that are processed at a time. The last bits of the statistics depend on it."""
_FEWEST_NUMBERED = 20
"""In fewer rows, a quantity may happen to have consecutive numbers."""
UNSEEN = -1.0
"""Stored in place of the index of a category that the model does not know."""


@dataclass(frozen=True)
class Rows:
    """N raw rows of features, such as those of a table."""

    values: Tensor
    """[N, C] numbers, and the indices of categories; NaN is a missing value."""
    columns: tuple[Column, ...]

    def __len__(self) -> int:
        return len(self.values)

    def unseen(self, spec: InputSpec) -> dict[str, dict[str, int]]:
        """Return the categories that a model does not know, by column, and the number of their rows."""
        known = {column.name: column.categories for column in spec.columns if column.categories is not None}
        found = {}
        for place, column in enumerate(self.columns):
            if column.name in known and (new := set(column.categories or ()) - set(known[column.name] or ())):
                counts = self.values[:, place].nan_to_num(len(column.categories or ())).long().bincount().tolist()
                found[column.name] = {
                    name: count for name, count in zip(column.categories or (), counts, strict=False) if name in new
                }
        return found


def with_vectors(rows: Rows | None, vectors: Tensor, what: str, number: int) -> Rows:
    """Return rows with a vector [N, D] appended to each; ``what`` names the files of both."""
    if len(vectors) != number:
        raise MessiError(
            f"{what} must have one vector per row, in the same order, but have {len(vectors):,} vectors and {number:,} "
            "rows."
        )
    columns = tuple(Column(f"vectors[{place}]") for place in range(vectors.shape[1]))
    if rows is None:
        return Rows(vectors.double(), columns)
    return Rows(torch.cat([rows.values, vectors.double()], dim=1), (*rows.columns, *columns))


def fit_spec(values: Tensor, train: Tensor, columns: Sequence[Column] = (), scaling: Scaling = "none") -> InputSpec:
    """Return how raw features become the input of an encoder, by statistics of the training part only.

    A missing number is replaced by the mean. A column with missing values gets an indicator. Numbers are centred and
    divided by their standard deviation, unless that is 0. Categories and indicators are 0 or 1.

    Args:
        values: raw features [N, C].
        train: the indices of the training examples.
        columns: the C raw columns; empty for numbers without names.
        scaling: whether numbers are standardised.

    """
    measured, standardise = _measure(values, train), scaling == "standardise"
    missing = measured.count < len(train)
    if not columns and not missing.any():
        bare = InputSpec(tuple(values.shape[1:]))
        statistics = {"mean": tuple(measured.mean.tolist()), "std": tuple(measured.std.tolist())}
        return dataclasses.replace(bare, **statistics) if standardise else bare
    fitted, means, stds = [], list[float](), list[float]()
    for place, column in enumerate(columns or (Column(str(place)) for place in range(values.shape[1]))):
        indicator = bool(missing[place])
        if column.categories is None:
            mean, std = float(measured.mean[place]), float(measured.std[place])
            fitted.append(Column(column.name, fill=mean, indicator=indicator))
            means += [mean if standardise else 0.0, *[0.0] * indicator]
            stds += [std if standardise else 1.0, *[1.0] * indicator]
        else:
            present = values[train, place]
            indices = present[present.isfinite()].unique().long().tolist()
            fitted.append(Column(column.name, tuple(column.categories[i] for i in indices), indicator=indicator))
            means += [0.0] * fitted[-1].width
            stds += [1.0] * fitted[-1].width
    return InputSpec((len(means),), tuple(means), tuple(stds), tuple(fitted))


def encode(values: Tensor, spec: InputSpec, columns: Sequence[Column] = ()) -> Tensor:
    """Return raw features [N, C] as the input [N, F] of an encoder: finite, float32.

    Args:
        values: raw features [N, C].
        spec: how raw features become the input.
        columns: the C raw columns, in any order, and possibly more than ``spec`` needs; empty for numbers in the order
            of ``spec``.

    """
    parts = _parts(values, spec, columns)
    if not spec.mean:
        require_finite(values, "The input")
        return values.float()
    mean, std = (torch.tensor(numbers, dtype=torch.float64) for numbers in (spec.mean, spec.std))
    largest = torch.finfo(torch.float32).max
    encoded = torch.empty(len(values), *spec.shape)
    for start in range(0, len(values), _CHUNK):
        rows = values[start : start + _CHUNK].double()
        features = torch.cat([part.features(rows) for part in parts], dim=1) if parts else rows
        features = torch.where(features.isnan(), mean, features)
        encoded[start : start + _CHUNK] = ((features - mean) / std).clamp(-largest, largest)
    return encoded


def require_consistent(spec: InputSpec) -> None:
    """Raise ValueError if the parts of an untrusted spec of features contradict each other."""
    width = spec.shape[0]
    if not len(spec.mean) == len(spec.std) in (0, width) or any(number <= 0 for number in spec.std):
        raise ValueError(f"{width} features need {width} means and positive standard deviations")
    if spec.columns and (not spec.mean or sum(column.width for column in spec.columns) != width):
        raise ValueError(f"its columns do not give {width} features")


def encoded(examples: Examples, spec: InputSpec) -> Examples:
    """Return examples whose features are the input of an encoder; images are prepared later."""
    if isinstance(examples.inputs, Images):
        return examples
    inputs = encode(examples.inputs, spec, examples.columns)
    return dataclasses.replace(examples, inputs=inputs, columns=(), scaling="none")


def constant_features(values: Tensor, train: Tensor, columns: Sequence[Column] = ()) -> list[str]:
    """Return the names of the columns that have a single value in the training part, or none."""
    first = values[train[:1]]
    same = torch.ones(values.shape[1], dtype=torch.bool)
    for rows in train.split(_CHUNK):
        same &= ((values[rows] == first) | (values[rows].isnan() & first.isnan())).all(0)
    return [columns[place].name if columns else str(place) for place in same.nonzero().flatten().tolist()]


def row_numbers(values: Tensor, columns: Sequence[Column]) -> list[str]:
    """Return the names of the columns that number the examples: whole numbers, each once, without a gap."""
    found = []
    for place, column in enumerate(columns):
        numbers = values[:, place]
        if column.categories is None and len(numbers) >= _FEWEST_NUMBERED and numbers.isfinite().all():
            steps = numbers.double().sort().values.diff()
            if bool((steps == 1).all()) and float(numbers[0]).is_integer():
                found.append(column.name)
    return found


@dataclass(frozen=True)
class _Part:
    """The features that are made of one raw column."""

    column: Column
    place: int
    """Where the raw column is."""
    indices: Tensor
    """The index of each raw category among those of ``column``; the last entry is that of an unseen one."""

    @classmethod
    def of(cls, column: Column, place: int, raw: Column) -> "_Part":
        known = {name: index for index, name in enumerate(column.categories or ())}
        return cls(column, place, torch.tensor([*(known.get(name, -1) for name in raw.categories or ()), -1]))

    def features(self, rows: Tensor) -> Tensor:
        """Return [n, width] features of n rows."""
        cells = rows[:, self.place, None]
        missing = cells.isnan()
        if self.column.categories is None:
            features = torch.where(missing, self.column.fill, cells)
        else:
            index = self.indices[cells.nan_to_num(UNSEEN).long()]
            features = (index == torch.arange(len(self.column.categories))).double()
        return torch.cat([features, missing.double()], dim=1) if self.column.indicator else features


def _parts(values: Tensor, spec: InputSpec, columns: Sequence[Column]) -> list[_Part]:
    """Match the columns of a model with raw columns of the same name; none if the model's features have no names."""
    wanted = spec.columns or tuple(Column(str(place)) for place in range(spec.shape[0]))
    if not (columns and spec.columns):
        _require_numbers(values, [*columns, *wanted], len(wanted))
        columns = wanted
    places = {column.name: place for place, column in enumerate(columns)}
    for column in spec.columns:
        if column.name not in places:
            raise MessiError(f"The feature '{column.name}' is missing; the columns are: {first_few(list(places), 10)}.")
        raw = columns[places[column.name]]
        if (raw.categories is None) != (column.categories is None):
            found, expected = ("text", "numbers") if column.categories is None else ("numbers", "categories")
            raise MessiError(f"Column '{column.name}' must contain {expected}, as in training, but contains {found}.")
    return [_Part.of(column, places[column.name], columns[places[column.name]]) for column in spec.columns]


def _require_numbers(values: Tensor, columns: Sequence[Column], number: int) -> None:
    """Raise unless rows without names are numbers, as many as a model takes."""
    if text := next((column.name for column in columns if column.categories is not None), None):
        raise MessiError(f"Column '{text}' has categories; give rows with the same named columns as in training.")
    if values.dim() != 2 or values.shape[1] != number:
        raise MessiError(
            f"The model takes rows of {number} features, but the input has the shape {list(values.shape)}; give data "
            "with the same features as in training."
        )


@dataclass(frozen=True)
class _Measured:
    """Statistics of every column over the training part, in float64."""

    count: np.ndarray
    """The number of values that are not missing."""
    mean: np.ndarray
    std: np.ndarray
    """After missing values are replaced by the mean; 1 for a column with a single value."""


def _measure(values: Tensor, train: Tensor) -> _Measured:
    """Measure the training part in two passes; numpy adds row by row, whatever the number of threads."""
    width = values.shape[1]
    count, total, squares = (np.zeros(width) for _ in range(3))
    low, high = np.full(width, math.inf), np.full(width, -math.inf)
    for rows in _rows(values, train):
        present = ~np.isnan(rows)
        count += present.sum(0)
        total += np.where(present, rows, 0).sum(0)
        low, high = (
            np.fmin(low, rows.min(0, initial=math.inf, where=present)),
            np.fmax(high, rows.max(0, initial=-math.inf, where=present)),
        )
    mean = total / np.maximum(count, 1)
    for rows in _rows(values, train):
        squares += np.where(np.isnan(rows), 0, (rows - mean) ** 2).sum(0)
    std = np.sqrt(squares / max(len(train), 1))
    # A sum of equal numbers is inexact, so the spread of a constant column may be above 0.
    return _Measured(count, np.where(low == high, low, mean), np.where((low >= high) | (std == 0), 1.0, std))


def _rows(values: Tensor, train: Tensor) -> Iterator[np.ndarray]:
    return (values[indices].double().numpy() for indices in train.split(_CHUNK))
