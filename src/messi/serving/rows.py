"""Rows of JSON or CSV become features: columns are found by name, and an error names the row and the column."""

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from messi.core.batch import Column, InputSpec
from messi.core.text import first_few
from messi.data.features import UNSEEN, encode
from messi.serving.problems import ProblemError
from messi.serving.ready_input import ReadyInput

_MISSING = {"", "nan", "na", "n/a", "null", "none"}
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
    notes: list[list[str]] = [[] for _ in rows]
    values = [
        [
            _number(cell, column, number, notes[number - 1])
            for cell, column in zip(_cells(row, number, columns, named=bool(spec.columns)), columns, strict=True)
        ]
        for number, row in enumerate(rows, start=1)
    ]
    encoded = encode(torch.tensor(values, dtype=torch.float64), spec, spec.columns)
    return [ReadyInput(features, tuple(about)) for features, about in zip(encoded, notes, strict=True)]


def _cells(row: _Row, number: int, columns: Sequence[Column], *, named: bool) -> Sequence[Any]:
    """Return the cells of a row in the order of the model's columns; other columns are ignored."""
    names = [column.name for column in columns]
    if not isinstance(row, Mapping):
        if len(row) != len(columns):
            raise ProblemError(422, f"Row {number} has {len(row)} values, but the model takes {len(columns)}.")
        return row
    if not named:
        raise ProblemError(
            422, f"The features of this model have no names; send rows as lists of {len(names)} numbers."
        )
    if missing := next((name for name in names if name not in row), None):
        given = first_few([str(name) for name in row], 10) or "none"
        raise ProblemError(422, f"Row {number} has no column '{missing}', which the model requires; it has: {given}.")
    return [row[name] for name in names]


def _number(cell: Any, column: Column, number: int, notes: list[str]) -> float:
    """Return a number, the index of a category, or NaN for a missing value."""
    if isinstance(cell, bool | list | dict):
        raise ProblemError(422, f"Row {number}, column '{column.name}': a cell must be a number, text or null.")
    if cell is None or (isinstance(cell, str) and cell.strip().lower() in _MISSING):
        return math.nan
    if column.categories is not None:
        name = str(cell).strip()
        if name in column.categories:
            return float(column.categories.index(name))
        known = first_few(list(column.categories), 5)
        notes.append(f"Column '{column.name}': the category '{name}' did not occur in training; known are: {known}.")
        return UNSEEN
    try:
        value = float(cell)
    except (ValueError, OverflowError):
        value = math.inf
    if not math.isfinite(value):
        shown = repr(cell) if len(repr(cell)) <= 40 else f"{repr(cell)[:40]}..."
        raise ProblemError(422, f"Row {number}, column '{column.name}': {shown} is not a finite number.")
    return value


def _not_json(text: str) -> None:
    raise ValueError(f"{text} is not a number of JSON; write null for a missing value")


def _text(body: bytes) -> str:
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ProblemError(400, f"The body is not UTF-8: byte {error.start} is not valid.") from error
