"""Rows of JSON or CSV become features: columns are found by name, and an error names the row and the column."""

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow

from messi.core.batch import Column, InputSpec
from messi.core.text import first_few, plain_name
from messi.data.cells import Source, read_known
from messi.data.features import Rows, encode
from messi.serving.problems import ProblemError
from messi.serving.ready_input import ReadyInput

_REQUEST = Source("the request", 1)
_Row = Mapping[str, Any] | Sequence[Any]


def read_json(body: bytes, spec: InputSpec) -> list[ReadyInput]:
    """Read ``{"rows": [...]}``; a row is an object by column name, or a list in the order of training."""
    try:
        values = json.loads(_text(body), parse_constant=_not_json)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ProblemError(400, f"The body is not JSON: {reason.rstrip('.')}.") from error
    rows = values.get("rows") if isinstance(values, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict | list) for row in rows):
        raise ProblemError(422, 'The body must be an object with a list of rows, {"rows": [{"column": value}]}.')
    return _encoded(rows, spec)


def read_csv(body: bytes, spec: InputSpec) -> list[ReadyInput]:
    """Read lines of CSV; the first one has the names of the columns if the columns of the model have names."""
    try:
        lines = [line for line in csv.reader(io.StringIO(_text(body), newline=""), strict=True) if line]
    except csv.Error as error:
        raise ProblemError(400, f"The body is not CSV: {error}.") from error
    if not spec.columns or not lines:
        return _encoded(lines, spec)
    names, *rows = [[cell.strip() for cell in line] for line in lines]
    if len(set(names)) < len(names):
        raise ProblemError(422, "The first line names a column twice; every column needs its own name.")
    for number, row in enumerate(rows, start=1):
        if len(row) != len(names):
            raise ProblemError(422, f"Row {number} has {len(row)} cells, but the first line has {len(names)} names.")
    return _encoded([dict(zip(names, row, strict=True)) for row in rows], spec)


def _encoded(rows: Sequence[_Row], spec: InputSpec) -> list[ReadyInput]:
    if not rows:
        return []
    columns = spec.columns or tuple(Column(str(place)) for place in range(spec.shape[0]))
    by_column = _by_column(rows, columns, named=bool(spec.columns))
    _require_no_lists(by_column, columns)
    cells = {name: _arrow(values) for name, values in by_column.items()}
    raw = read_known(cells, columns, _REQUEST)
    encoded = encode(raw.values, spec, raw.columns if spec.columns else ())
    notes = _unseen_categories(raw, {column.name: column.categories for column in spec.columns})
    return [ReadyInput(features, tuple(about)) for features, about in zip(encoded, notes, strict=True)]


def _by_column(rows: Sequence[_Row], columns: Sequence[Column], *, named: bool) -> dict[str, list[Any]]:
    """Return the cells of every column; a row that is a list has them in the order of training."""
    first = rows[0]
    names = [str(name) for name in first] if isinstance(first, Mapping) else [column.name for column in columns]
    if isinstance(first, Mapping) and not named:
        raise ProblemError(
            422, f"The features of this model have no names; send rows as lists of {len(columns)} numbers."
        )
    for number, row in enumerate(rows, start=1):
        if isinstance(row, Mapping) != isinstance(first, Mapping):
            raise ProblemError(422, "Rows must be all objects or all lists.")
        if isinstance(row, Mapping) and row.keys() != set(names):
            raise ProblemError(422, f"Row {number} has other columns than row 1; every row needs the same columns.")
        if len(row) != len(names):
            raise ProblemError(422, f"Row {number} has {len(row)} values, but the model takes {len(names)}.")
    listed = [list(map(row.__getitem__, names)) if isinstance(row, Mapping) else row for row in rows]
    plain = list(map(plain_name, names))
    if twice := next((name for name in plain if plain.count(name) > 1), None):
        raise ProblemError(422, f"The rows have several columns named '{twice}'; every column needs its own name.")
    return {name: [row[place] for row in listed] for place, name in enumerate(plain)}


def _require_no_lists(cells: Mapping[str, list[Any]], columns: Sequence[Column]) -> None:
    """Raise if a cell of a column of the model is a list; those of a vector have other names, such as ``x[0]``."""
    for column in columns:
        for row, value in enumerate(cells.get(column.name, ())):
            if isinstance(value, list):
                kind = "a number" if column.categories is None else "text"
                cell = _REQUEST.cell(row, column.name)
                raise ProblemError(422, f"The value in {cell} must be {kind}, but is a list; send a single value.")


def _arrow(values: list[Any]) -> pyarrow.ChunkedArray:
    """Return the cells of a column; those of several types become text."""
    try:
        column = pyarrow.array(values)
    except (pyarrow.ArrowException, OverflowError, TypeError, ValueError):
        column = pyarrow.array([None if value is None else str(value) for value in values], pyarrow.string())
    return pyarrow.chunked_array([column])


def _unseen_categories(raw: Rows, known: Mapping[str, tuple[str, ...] | None]) -> list[list[str]]:
    """Return, for every row, a note on each category that did not occur in training."""
    notes: list[list[str]] = [[] for _ in raw.values]
    for place, column in enumerate(raw.columns):
        expected = known.get(column.name)
        if column.categories is None or expected is None:
            continue
        for number, value in enumerate(raw.values[:, place].tolist()):
            if not math.isnan(value) and (name := column.categories[int(value)]) not in expected:
                told = first_few(list(expected), 5)
                text = f"Column '{column.name}': the category '{name}' did not occur in training; known are: {told}."
                notes[number].append(text)
    return notes


def _not_json(text: str) -> None:
    raise ValueError(f"{text} is not a number of JSON; write null for a missing value")


def _text(body: bytes) -> str:
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ProblemError(400, f"The body is not UTF-8: byte {error.start} is not valid.") from error
