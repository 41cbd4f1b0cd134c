"""Reading CSV, TSV and Parquet files: every problem is named with its row, and memory is checked before it is used."""

import csv
import io
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from messi.core.errors import MessiError, unknown_name
from messi.core.files import open_regular
from messi.core.info import physical_memory
from messi.core.text import bytes_text, plain_name

if TYPE_CHECKING:  # slow to import, and needed only for a table
    import pyarrow

Columns = dict[str, "pyarrow.ChunkedArray"]
"""The columns of a table by name: text in a CSV file, any type in a Parquet file."""

SUFFIXES = (".csv", ".tsv", ".parquet")
FIRST_ROW = 2
"""The number of the first row below the header."""
_AT_ONCE = 4096
_SHARE = 0.5
"""Fraction of the machine's memory that a table may take."""
_GROWTH = 4
"""Memory per byte of a CSV file: text, and a number of eight bytes for a cell of a few characters."""


def read_columns(path: Path) -> Columns:
    """Return the columns of a table; one without a name, which programs write for row numbers, is left out."""
    columns = _read_parquet(path) if path.suffix.lower() == ".parquet" else _read_csv(path)
    if not any(map(len, columns.values())):
        raise MessiError(f"The table {path} has no rows; it must have one per example below its header.")
    return columns


def require_distinct(names: Sequence[str], what: str) -> None:
    """Raise if two columns have the same name; ``what`` names the table."""
    for name, number in Counter(names).items():
        if name and number > 1:
            raise MessiError(f"{what} has several columns named '{name}'; rename all but one.")


def no_column(path: Path, option: str, name: str, columns: Sequence[str]) -> MessiError:
    """Return the error for a column that does not exist; ``option`` names it."""
    advice = _other_separator(columns) or f"Name the column with {option}."
    return MessiError(unknown_name(f"column in {path}", name, columns).problem, advice)


def _other_separator(header: Sequence[str]) -> str:
    """Return what to do if the columns seem to be separated by another character; if not, nothing."""
    if len(header) == 1 and any(separator in header[0] for separator in ";\t|"):
        return "Separate the columns with commas, or with tabs in a .tsv file."
    return ""


def read_header(path: Path) -> tuple[list[str], list[str]]:
    """Return the names of the columns of a table and the text in its first row, which is empty without a row."""
    if path.suffix.lower() == ".parquet":
        columns = _read_parquet(path, rows=1)
        return list(columns), [str(column[0].as_py()) for column in columns.values() if len(column)]
    rows = [row for _, row in zip(range(2), _csv_rows(path), strict=False)]
    return rows[0], rows[1] if len(rows) > 1 else []


def _read_csv(path: Path) -> Columns:
    import pyarrow  # noqa: PLC0415

    _require_memory(path, path.stat().st_size * _GROWTH if path.exists() else 0)
    lines = _csv_rows(path)
    header = next(lines)
    text = pyarrow.string()
    chunks: list[list[pyarrow.Array]] = [[] for _ in header]
    while rows := list(itertools.islice(lines, _AT_ONCE)):
        for chunk, cells in zip(chunks, zip(*rows, strict=True), strict=True):
            chunk.append(pyarrow.array(cells, text))
    return {name: pyarrow.chunked_array(chunk, text) for name, chunk in zip(header, chunks, strict=True) if name}


def _csv_rows(path: Path) -> Iterator[list[str]]:
    """Yield the header and every row; all have the same number of cells."""
    try:
        with open_regular(path) as raw, io.TextIOWrapper(raw, "utf-8-sig", newline="") as file:
            lines = csv.reader(file, delimiter="\t" if path.suffix.lower() == ".tsv" else ",", strict=True)
            header = list(map(plain_name, next(lines, ())))
            if not header and not raw.tell():
                raise MessiError(
                    f"The table {path} is empty; it must have a header, such as label,domain,age,weight, and a row "
                    "per example."
                )
            require_distinct(header, str(path))
            yield header
            blank = 0 if header else FIRST_ROW - 1
            for number, row in enumerate(lines, start=FIRST_ROW):
                blank = blank or (0 if row else number)
                if row and blank:  # blank rows are allowed at the end
                    raise MessiError(f"Row {blank} of {path} is blank; remove it.")
                if row and len(row) != len(header):
                    raise MessiError(
                        f"Row {number} of {path} has {len(row)} cells, but the header has {len(header)}.",
                        _other_separator(header),
                    )
                if row:
                    yield row
    except (OSError, UnicodeDecodeError, csv.Error, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise MessiError(
            f"The table {path} cannot be read: {reason}. It must be CSV in UTF-8 with a header."
        ) from error


def _read_parquet(path: Path, *, rows: int | None = None) -> Columns:
    import pyarrow  # noqa: PLC0415
    from pyarrow import parquet  # noqa: PLC0415

    try:
        with open_regular(path) as raw:
            names = [field.name for field in parquet.read_schema(raw) if pyarrow.types.is_string(field.type)]
            file = parquet.ParquetFile(raw, read_dictionary=names)
            _require_memory(path, file.metadata.num_rows * file.metadata.num_columns if rows is None else 0)
            header = list(map(plain_name, file.schema_arrow.names))
            require_distinct(header, str(path))
            batches, size = [], 0
            for batch in file.iter_batches(batch_size=rows or _AT_ONCE):
                size += sum(map(_full_size, batch.columns))
                _require_memory(path, size)  # a small file may contain a lot
                batches.append([_plain(column) for column in batch.columns])
                if rows:
                    break
            chunks = zip(*batches, strict=True) if batches else ([] for _ in header)
            types = [_plain_type(kind) for kind in file.schema_arrow.types]
            columns = [pyarrow.chunked_array(chunk, kind) for chunk, kind in zip(chunks, types, strict=True)]
            for column in columns:
                column.validate(full=True)
    except (OSError, ValueError, KeyError, OverflowError, MemoryError, pyarrow.ArrowException) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split()).rstrip(".")
        raise MessiError(f"The table {path} cannot be read: {reason}. It must be a Parquet file.") from error
    return {name: column for name, column in zip(header, columns, strict=True) if name}


def _full_size(column: "pyarrow.Array") -> int:
    """Return the number of bytes of a column without a dictionary."""
    import pyarrow  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    if not pyarrow.types.is_dictionary(column.type):
        return int(column.nbytes)
    lengths = pc.binary_length(column.dictionary.cast("large_string")).take(column.indices)
    return len(column) + int(pc.sum(pc.cast(lengths, "int64")).as_py() or 0)


def _plain(column: "pyarrow.Array") -> "pyarrow.Array":
    return column.cast(_plain_type(column.type))


def _plain_type(kind: "pyarrow.DataType") -> "pyarrow.DataType":
    """Return the type of the values of a dictionary, or the type itself."""
    import pyarrow  # noqa: PLC0415

    return kind.value_type if pyarrow.types.is_dictionary(kind) else kind


def _require_memory(path: Path, size: int) -> None:
    memory = physical_memory()
    if memory is not None and size > _SHARE * memory:
        raise MessiError(
            f"The table {path} needs {bytes_text(size)} of memory, and this machine has {bytes_text(memory)}; write "
            "fewer rows to it."
        )
