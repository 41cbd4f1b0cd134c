"""Your own images, listed in a table: CSV, TSV or Parquet with a row per image."""

import csv
import io
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from messi.core.errors import MessiError, unknown_name
from messi.core.files import open_regular
from messi.data.datasets.common.base import ImageData
from messi.data.listing import Listing, make_listing
from messi.data.progress import DataProgress

SUFFIXES = (".csv", ".tsv", ".parquet")
_LINES_BEFORE_FIRST_ROW = 2


@dataclass(frozen=True, kw_only=True)
class Table(ImageData):
    """Your own images in a CSV, TSV or Parquet table with the columns path, label, domain and, optionally, split."""

    path: tyro.conf.Fixed[str]
    """The table."""
    root: str | None = None
    """The folder that paths in the table are relative to; by default the folder of the table."""
    path_column: str = "path"
    """The column with the image files."""
    label_column: str = "label"
    """The column with the classes."""
    domain_column: str = "domain"
    """The column with the domains."""
    split_column: str = "split"
    """The column with train, val and test; required only for --split official."""

    def listing(self, progress: DataProgress) -> Listing:  # noqa: ARG002 (nothing to report)
        """Return the image files."""
        path = Path(self.path)
        columns = read_table(path)
        wanted = {option: getattr(self, option) for option in ("path_column", "domain_column", "label_column")}
        for option, name in wanted.items():
            if name not in columns:
                raise _no_column(path, option, name, list(columns))
        files, domains, labels = (columns[name] for name in wanted.values())
        rows = list(zip(files, _trimmed(domains), _trimmed(labels), strict=True))
        for number, row in enumerate(rows, start=_LINES_BEFORE_FIRST_ROW):
            if not all(cell.strip() for cell in row):
                raise MessiError(f"Row {number} of {path} has an empty cell; fill in {', '.join(wanted.values())}.")
        root = Path(self.root) if self.root else path.parent
        check_paths(path, root, files)
        parts = _trimmed(columns.get(self.split_column, ()))
        return make_listing(root, rows, parts=parts, numbers_in_order=True)


def check_paths(table: Path, root: Path, files: Sequence[str]) -> None:
    """Refuse paths that leave the root, which is easily overlooked, and Windows paths."""
    for number, file in enumerate(files, start=_LINES_BEFORE_FIRST_ROW):
        if "\\" in file and not (root / file).exists():
            raise MessiError(
                f"Row {number} of {table} has the Windows path '{file}'; write it with / instead of \\ and without a "
                f"drive, relative to {root} or to the folder given with --root."
            )
        if ".." in file and Path(os.path.normpath(file)).parts[0] == "..":
            raise MessiError(
                f"Row {number} of {table} has the path '{file}', which leaves the folder {root}; write the path "
                "without '..', relative to a folder given with --root, or as an absolute path."
            )


def _trimmed(names: Sequence[str]) -> list[str]:
    """Remove the blanks around names, which are invisible and would turn one class into two."""
    return [name.strip() for name in names]


def _no_column(path: Path, option: str, name: str, columns: Sequence[str]) -> MessiError:
    advice = f"Name the column with --{option.replace('_', '-')}."
    if len(columns) == 1 and any(separator in columns[0] for separator in ";\t|"):
        advice = "Separate the columns with commas, or with tabs in a .tsv file."
    return MessiError(unknown_name(f"column in {path}", name, columns).problem, advice)


def read_table(path: Path) -> dict[str, Sequence[str]]:
    """Return the columns of a table, all values as text."""
    columns = _read_parquet(path) if path.suffix.lower() == ".parquet" else _read_csv(path)
    if not any(columns.values()):
        raise MessiError(f"The table {path} has no rows; it must have one per image below its header.")
    return columns


def _read_csv(path: Path) -> dict[str, Sequence[str]]:
    try:
        with open_regular(path) as raw, io.TextIOWrapper(raw, "utf-8-sig", newline="") as file:
            lines = list(csv.reader(file, delimiter="\t" if path.suffix.lower() == ".tsv" else ",", strict=True))
    except (OSError, UnicodeDecodeError, csv.Error, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise MessiError(
            f"The table {path} cannot be read: {reason}. It must be CSV in UTF-8 with a header."
        ) from error
    if not lines:
        raise MessiError(
            f"The table {path} is empty; it must have a header, such as path,label,domain, and a row per image."
        )
    header, *rows = lines
    while rows and not rows[-1]:
        rows.pop()
    for number, row in enumerate(rows, start=_LINES_BEFORE_FIRST_ROW):
        if len(row) != len(header):
            raise MessiError(f"Row {number} of {path} has {len(row)} cells, but the header has {len(header)}.")
    for name in header:
        if name and header.count(name) > 1:
            raise MessiError(f"{path} has several columns named '{name}'; rename all but one.")
    return {name: [row[index] for row in rows] for index, name in enumerate(header)}


def _read_parquet(path: Path) -> dict[str, Sequence[str]]:
    from pyarrow import ArrowException, parquet  # noqa: PLC0415 (slow to import, and needed only here)

    try:
        with open_regular(path) as file:
            table = parquet.read_table(file)
        columns = zip(table.column_names, table.columns, strict=True)
        return {name: [_text(value) for value in column.to_pylist()] for name, column in columns}
    except (OSError, ValueError, ArrowException) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split()).rstrip(".")
        raise MessiError(f"The table {path} cannot be read: {reason}. It must be a Parquet file.") from error


def _text(value: object) -> str:
    """Return a cell as text; a missing value or NaN is empty."""
    missing = value is None or (isinstance(value, float) and math.isnan(value))
    return "" if missing else str(value)
