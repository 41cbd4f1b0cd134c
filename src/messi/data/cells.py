"""From the cells of a table to numbers and categories. A problem is named with its row and column."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import pyarrow
import pyarrow.compute as pc
import torch

from messi.core.batch import Column
from messi.core.errors import MessiError
from messi.core.text import first_few, plain_name
from messi.data.features import Rows
from messi.data.listing import by_number

MISSING = ("", "na", "n/a", "nan", "null")
"""Text of a missing value, in upper or lower case."""
MOST_CATEGORIES = 100
"""Columns with more texts are refused unless they are named: most are names or identifiers."""
_LONGEST = 1000
"""Characters of a category."""
_FEW = 10
"""Columns with so few texts are categories, even if hardly any is repeated."""
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_INFINITE = r"(?i)^[+-]?inf(inity)?$"
_DECIMAL = re.compile(r"(-?(?:0|[1-9][0-9]*))\.([0-9]*)")
_DATE = re.compile(r"([0-9]{4}[-/.][0-9]{1,2}[-/.][0-9]{1,2}|[0-9]{1,2}[-/.][0-9]{1,2}[-/.][0-9]{4})([T ].*)?")
"""A day and perhaps a time. A year and a month, such as 2026-11, may well be a category."""
_LARGEST = float(np.finfo(np.float32).max)
Kind = Literal["numbers", "categories"]
Cells = Mapping[str, "pyarrow.ChunkedArray"]


@dataclass(frozen=True)
class Source:
    """Where cells come from, for messages."""

    name: str
    first_row: int
    """The number of the first row."""

    def cell(self, row: int, column: str) -> str:
        """Name a cell."""
        counted = "" if self.first_row else ", counted from 0"
        return f"row {row + self.first_row} of {self.name}{counted}, column '{column}'"


def read_rows(
    cells: Cells,
    source: Source,
    *,
    kinds: Mapping[str, Kind],
    named: Collection[str] = (),
    categories: Mapping[str, Collection[str]] = MappingProxyType({}),
) -> Rows:
    """Return the columns as numbers and categories.

    Args:
        cells: the columns that are features.
        source: where they come from.
        kinds: the kind of each column that is known. Another one has numbers if all its cells are numbers or missing.
        named: columns that may have any number of categories.
        categories: the categories of a model, whose spelling is kept.

    """
    parts = [
        _Reader(name, source, name in named, categories.get(name, ())).read(cells[name], kinds.get(name))
        for name in cells
    ]
    values = np.concatenate([values for values, _ in parts], axis=1)
    return Rows(torch.from_numpy(values), tuple(column for _, columns in parts for column in columns))


def read_known(cells: Cells, wanted: Sequence[Column], source: Source) -> Rows:
    """Return the columns that a model takes, found by name, with the kinds that they had in training."""
    places: dict[str, Kind] = {}
    for column in wanted:
        # All readers change names in this way; those in models of earlier versions may be as they were in the table.
        name = column.name if plain_name(column.name) in cells else _vector(column.name)
        if plain_name(name) not in cells:
            raise MessiError(
                f"The feature '{name}' is missing in {source.name}; its columns are: {first_few(list(cells), 10)}."
            )
        places[name] = "numbers" if column.categories is None else "categories"
    categories = {column.name: column.categories or () for column in wanted}
    chosen = {name: cells[plain_name(name)] for name in places}
    return read_rows(chosen, source, kinds=places, named=places, categories=categories)


def read_names(column: "pyarrow.ChunkedArray", name: str, source: Source) -> tuple[tuple[str, ...], torch.Tensor]:
    """Return the distinct names in a column, such as classes, in order, and the index of the name in each row."""
    texts = _as_text(column, name, source)
    empty = pc.or_kleene(pc.is_null(texts), pc.equal(pc.fill_null(texts, ""), ""))
    if pc.any(empty).as_py():
        raise MessiError(f"An empty cell in {source.cell(pc.index(empty, True).as_py(), name)}; fill it in.")
    _require_short(texts, name, source)
    names, indices = _sorted_codes(texts, plain_name)
    return names, torch.from_numpy(indices).long()


def _vector(name: str) -> str:
    """Return the column of lists that a feature such as ``embedding[3]`` belongs to."""
    return re.sub(r"\[\d+\]$", "", name)


@dataclass(frozen=True)
class _Reader:
    """Reads one column."""

    name: str
    source: Source
    named: bool
    known: Collection[str]
    """The categories of a model."""

    def read(self, column: "pyarrow.ChunkedArray", kind: Kind | None) -> tuple[np.ndarray, list[Column]]:
        """Return float64 values [N, width] and what they mean."""
        types, type_ = pyarrow.types, column.type
        if types.is_list(type_) or types.is_large_list(type_) or types.is_fixed_size_list(type_):
            vectors = self._vectors(column)
            return vectors, [Column(f"{self.name}[{place}]") for place in range(vectors.shape[1])]
        numeric = types.is_integer(type_) or types.is_floating(type_) or types.is_decimal(type_) or types.is_null(type_)
        if numeric and kind != "categories":
            return self._finite(_to_numpy(column))[:, None], [Column(self.name)]
        if kind != "categories" and (parsed := _parsed(column)) is not None:
            return self._finite(parsed)[:, None], [Column(self.name)]
        texts = _without_missing(_as_text(column, self.name, self.source))
        if kind != "categories" and (numbers := self._numbers(texts, required=kind == "numbers")) is not None:
            return numbers[:, None], [Column(self.name)]
        return self._categories(texts)

    def _vectors(self, column: "pyarrow.ChunkedArray") -> np.ndarray:
        """Return the numbers of a column of lists; a missing list is missing numbers."""
        combined = column.combine_chunks()
        lengths = pc.list_value_length(combined)
        known = lengths.drop_null()
        if not len(known) or not (width := known[0].as_py()):
            raise MessiError(f"Column '{self.name}' of {self.source.name} has no numbers; fill it in or ignore it.")
        other = pc.fill_null(pc.not_equal(lengths, width), False)
        if pc.any(other).as_py():
            row = pc.index(other, True).as_py()
            raise MessiError(
                f"The list in {self.source.cell(row, self.name)} has {lengths[row].as_py()} numbers, but the first has "
                f"{width}; all lists must have the same length."
            )
        flat = pc.list_flatten(combined)
        if not (pyarrow.types.is_integer(flat.type) or pyarrow.types.is_floating(flat.type)):
            raise MessiError(f"Column '{self.name}' of {self.source.name} must have lists of numbers; ignore it.")
        vectors = np.full((len(column), width), np.nan)
        vectors[pc.is_valid(combined).to_numpy(zero_copy_only=False)] = _to_numpy(flat).reshape(-1, width)
        return self._finite(vectors)

    def _numbers(self, texts: "pyarrow.ChunkedArray", *, required: bool) -> np.ndarray | None:
        """Return the numbers in a column of text, or None if it has other text; most cells must then be other text."""
        infinite = pc.match_substring_regex(texts, _INFINITE)
        fits = pc.fill_null(pc.or_(pc.match_substring_regex(texts, _NUMBER), infinite), True)
        if pc.all(fits).as_py():
            return self._finite(_to_numpy(pc.cast(texts, pyarrow.float64())))
        present = pc.sum(pc.is_valid(texts)).as_py()
        others = pc.sum(pc.invert(fits)).as_py()
        if not required and 2 * others > present:
            return None
        row = pc.index(fits, False).as_py()
        hint = " with a decimal point" if "," in texts[row].as_py() else ""
        problem = f"'{texts[row].as_py()[:40]}' in {self.source.cell(row, self.name)} is not a number{hint};"
        if required:
            raise MessiError(f"{problem} give numbers as in training.")
        raise MessiError(problem, f"correct it, or name the column with --categories {self.name}.")

    def _finite(self, values: np.ndarray) -> np.ndarray:
        """Return numbers unless one is infinite, or is in float32."""
        bad = np.abs(values) > _LARGEST
        if bad.any():
            row = int(bad.reshape(len(values), -1).any(1).argmax())
            raise MessiError(f"The number in {self.source.cell(row, self.name)} is infinite or too large; replace it.")
        return values

    def _categories(self, texts: "pyarrow.ChunkedArray") -> tuple[np.ndarray, list[Column]]:
        _require_short(texts, self.name, self.source)
        own = {_as_category(name): name for name in self.known} | {name: name for name in self.known}

        def spelled(text: str) -> str:
            name = _as_category(text)
            return own.get(text, own.get(name, name))

        names, indices = _sorted_codes(texts, spelled)
        if not self.named and names and all(map(_DATE.fullmatch, names)):
            raise MessiError(
                f"Column '{self.name}' of {self.source.name} has dates or times, such as '{names[0][:40]}';",
                f"convert it to numbers, leave it out with --ignore {self.name}, or keep it as categories with "
                f"--categories {self.name}.",
            )
        repeated = 2 * len(names) <= (indices >= 0).sum() or len(names) <= _FEW
        if not self.named and (len(names) > MOST_CATEGORIES or not repeated):
            raise MessiError(
                f"Column '{self.name}' of {self.source.name} has {len(names):,} different texts, such as "
                f"'{names[0][:40]}', each of which would be a feature;",
                f"leave it out with --ignore {self.name}, or keep it with --categories {self.name}.",
            )
        values = np.where(indices < 0, np.nan, indices)
        return values[:, None], [Column(self.name, names)]


def _as_category(text: str) -> str:
    """Return a category with composed characters, and a decimal number in the one spelling of that number."""
    text = plain_name(text)
    # pandas writes a whole number as 10.0 if another cell of its column is missing. Only this spelling, and 10., is
    # taken for 10, because 007, 1e3, 250.00 and 2.0.1 may be codes.
    found = _DECIMAL.fullmatch(text)
    if found is None:
        return text
    whole, fraction = found.groups()
    if fraction in ("", "0"):
        return str(whole)
    # Columns of floats become text with 17 digits: 0.10000000000000001 is 0.1 in a CSV file.
    return repr(float(text)) if text == f"{float(text):.17g}" else text


def _parsed(column: "pyarrow.ChunkedArray") -> np.ndarray | None:
    """Return a column of text without blanks and spelled-out missing values as numbers; None if it has other text."""
    if not pyarrow.types.is_string(column.type):
        return None
    try:
        return _to_numpy(pc.cast(pc.if_else(pc.equal(column, ""), None, column), pyarrow.float64()))
    except pyarrow.ArrowInvalid:
        return None


def _to_numpy(column: Any) -> np.ndarray:
    """Return numbers as float64, in which NaN is missing."""
    values: np.ndarray = pc.cast(column, pyarrow.float64(), safe=False).to_numpy(zero_copy_only=False)
    return values.astype(np.float64)


def _as_text(column: "pyarrow.ChunkedArray", name: str, source: Source) -> "pyarrow.ChunkedArray":
    """Return a column as text without blanks around it; truth values are 'true' and 'false', 2.0 is '2'."""
    types, type_ = pyarrow.types, column.type
    if types.is_dictionary(type_):
        return _as_text(column.cast(type_.value_type), name, source)
    if types.is_floating(type_) or types.is_decimal(type_):
        numbers = _to_numpy(column)
        texts = [None if number != number else f"{number:.17g}" for number in numbers.tolist()]  # noqa: PLR0124
        return pyarrow.chunked_array([pyarrow.array(texts, pyarrow.string())])
    if types.is_integer(type_) or types.is_boolean(type_) or types.is_null(type_):
        return column.cast(pyarrow.string())
    if not (types.is_string(type_) or types.is_large_string(type_)):
        kind = "dates or times" if types.is_temporal(type_) else f"values of type {type_}"
        raise MessiError(
            f"Column '{name}' of {source.name} has {kind};",
            f"convert it to numbers or text, or leave it out with --ignore {name}.",
        )
    trimmed = pc.utf8_trim_whitespace(column)
    lower = pc.utf8_lower(trimmed)
    return pc.if_else(pc.is_in(lower, pyarrow.array(["true", "false"], lower.type)), lower, trimmed)


def _require_short(texts: "pyarrow.ChunkedArray", name: str, source: Source) -> None:
    long = pc.fill_null(pc.greater(pc.utf8_length(texts), _LONGEST), False)
    if pc.any(long).as_py():
        raise MessiError(
            f"The text in {source.cell(pc.index(long, True).as_py(), name)} has more than {_LONGEST:,} characters, "
            f"which is too long for a category; leave the column out with --ignore {name}."
        )


def _without_missing(texts: "pyarrow.ChunkedArray") -> "pyarrow.ChunkedArray":
    missing = pc.is_in(pc.utf8_lower(texts), pyarrow.array(MISSING, texts.type))
    return pc.if_else(missing, pyarrow.scalar(None, texts.type), texts)


def _sorted_codes(texts: "pyarrow.ChunkedArray", spelling: Callable[[str], str]) -> tuple[tuple[str, ...], np.ndarray]:
    """Return the distinct names in order, and the index of each row's name; -1 where the text is missing."""
    encoded = texts.combine_chunks().dictionary_encode()
    found = [spelling(text) for text in encoded.dictionary.to_pylist()]
    names = sorted(set(found), key=by_number)
    order = np.array([*map({name: index for index, name in enumerate(names)}.__getitem__, found), -1])
    return tuple(names), order[pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False)]
