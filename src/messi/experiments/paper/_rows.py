"""How the paper's tables are written down: one line per row, in the order of the columns."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from messi.reports.paper_tables import Published

Key = TypeVar("Key", str, tuple[str, str])
Entry = float | tuple[float, float]
"""A mean, or a mean and its deviation."""


def rows(columns: Sequence[str], entries: Mapping[Key, Sequence[Entry]]) -> dict[Key, dict[str, Published]]:
    """Return the paper's number by row and column."""
    return {
        key: {column: _published(entry) for column, entry in zip(columns, line, strict=True)}
        for key, line in entries.items()
    }


def _published(entry: Entry) -> Published:
    return Published(*entry) if isinstance(entry, tuple) else Published(entry)
