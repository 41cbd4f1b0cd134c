"""Your own images, listed in a table: CSV, TSV or Parquet with a row per image."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from messi.core.errors import MessiError
from messi.core.text import plain_name
from messi.data.datasets.common.base import ImageData
from messi.data.datasets.common.tables import FIRST_ROW, no_column, read_columns
from messi.data.listing import Listing, make_listing
from messi.data.progress import DataProgress


@dataclass(frozen=True, kw_only=True)
class Table(ImageData):
    """Your own images in a CSV, TSV or Parquet table with the columns path, label, domain and, optionally, split."""

    path: tyro.conf.Fixed[str]
    """The table."""
    root: str | None = None
    """The folder that paths in the table are relative to; by default the folder of the table."""
    path_column: str = "path"
    """The column with the image files."""
    label_column: Annotated[str, tyro.conf.arg(aliases=("--label",))] = "label"
    """The column with the classes."""
    domain_column: Annotated[str, tyro.conf.arg(aliases=("--domain",))] = "domain"
    """The column with the domains."""
    split_column: str = "split"
    """The column with train, val and test; required only for --split official."""

    def listing(self, progress: DataProgress) -> Listing:  # noqa: ARG002 (nothing to report)
        """Return the image files."""
        path = Path(self.path)
        columns = read_table(path)
        options = ("path_column", "domain_column", "label_column")
        wanted = {option: plain_name(getattr(self, option)) for option in options}
        for option, name in wanted.items():
            if name not in columns:
                raise no_column(path, f"--{option.replace('_', '-')}", name, list(columns))
        files, domains, labels = (columns[name] for name in wanted.values())
        rows = list(zip(files, map(plain_name, domains), map(plain_name, labels), strict=True))
        for number, row in enumerate(rows, start=FIRST_ROW):
            if not all(cell.strip() for cell in row):
                raise MessiError(f"Row {number} of {path} has an empty cell; fill in {', '.join(wanted.values())}.")
        root = Path(self.root) if self.root else path.parent
        check_paths(path, root, files)
        parts = list(map(plain_name, columns.get(plain_name(self.split_column), ())))
        return make_listing(root, rows, parts=parts, numbers_in_order=True)


def check_paths(table: Path, root: Path, files: Sequence[str]) -> None:
    """Refuse paths that leave the root, which is easily overlooked, and Windows paths."""
    for number, file in enumerate(files, start=FIRST_ROW):
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


def read_table(path: Path) -> dict[str, Sequence[str]]:
    """Return the columns of a table, all values as text."""
    return {name: [_text(value) for value in column.to_pylist()] for name, column in read_columns(path).items()}


def _text(value: object) -> str:
    """Return a cell as text; a missing value or NaN is empty."""
    missing = value is None or (isinstance(value, float) and math.isnan(value))
    return "" if missing else str(value)
