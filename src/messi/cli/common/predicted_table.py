"""Predictions for the rows of a table, next to its own columns."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from messi.cli.common.output import Format, Row, note, print_rows, say, write_csv
from messi.core.errors import MessiError
from messi.core.files import replace_atomically
from messi.core.text import first_few
from messi.data.datasets.arrays import read_vectors
from messi.data.datasets.common.tables import FIRST_ROW, SUFFIXES, read_columns
from messi.data.features import Rows, with_vectors
from messi.evaluation.model import Answers, Model

if TYPE_CHECKING:  # slow to import, and needed only for a table
    import pyarrow

_AT_ONCE = 4096


def predict_table(model: Model, path: Path, vectors: Path | None) -> "pyarrow.Table":
    """Return the table with columns for class, probabilities and expert weights."""
    import pyarrow  # noqa: PLC0415

    columns = read_columns(path)
    answers = model.predict(_rows(model, path, columns, vectors))
    return pyarrow.table(columns | _appended(answers, model.classes, columns))


def _rows(model: Model, path: Path, columns: Any, vectors: Path | None) -> Rows:
    from messi.data.cells import Source, read_known, read_rows  # noqa: PLC0415 (slow to import, and needed only here)

    source, wanted = Source(str(path), FIRST_ROW), model.spec.columns
    if vectors:
        wanted = tuple(column for column in wanted if not column.name.startswith("vectors["))
        rows = read_known(columns, wanted, source) if wanted else None
        rows = with_vectors(rows, read_vectors(vectors), f"{vectors} and {path}", len(next(iter(columns.values()))))
    elif any(column.name == "vectors[0]" for column in wanted) and "vectors" not in columns:
        raise MessiError(f"The model takes vectors next to the table {path}; name their .npy file with --vectors.")
    else:
        rows = read_known(columns, wanted, source) if wanted else read_rows(columns, source, kinds={})
    unseen = [
        f"'{name}' in column '{column}' ({count:,} row{'s' if count > 1 else ''})"
        for column, names in rows.unseen(model.spec).items()
        for name, count in names.items()
    ]
    if unseen:
        note(f"Some categories were not in the training data and are treated as none of them: {first_few(unseen, 10)}.")
    return rows


def _appended(answers: Answers, classes: tuple[str, ...], taken: Any) -> dict[str, Any]:
    """Return the new columns; if one of their names is taken, all begin with ``predicted_``."""
    found: dict[str, Any] = {"class": answers.labels, "probability": answers.probabilities.amax(1).tolist()}
    found |= {f"probability_{name}": answers.probabilities[:, place].tolist() for place, name in enumerate(classes)}
    if answers.experts is not None:
        found |= {f"expert{m}": weights for m, weights in enumerate(answers.experts.T.tolist(), start=1)}
    return {f"predicted_{name}": cells for name, cells in found.items()} if found.keys() & taken.keys() else found


def require_table_file(out: Path | None, inputs: Sequence[Path]) -> None:
    """Raise if a table cannot be written to a file of this name, or if that would replace an input."""
    if out and out.suffix.lower() not in SUFFIXES:
        raise MessiError(f"--out must name a {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]} file, but is {out}.")
    if out and out.exists() and any(path.exists() and path.samefile(out) for path in inputs):
        raise MessiError(f"--out names {out}, which is the table to predict; write the rows to another file.")


def rows_table(rows: list[Row]) -> "pyarrow.Table":
    """Return rows that all have the same keys as a table."""
    import pyarrow  # noqa: PLC0415

    return pyarrow.Table.from_pylist(rows)


def show_table(table: "pyarrow.Table", form: Format, out: Path | None) -> None:
    """Write a table to a file, or print it."""
    if out:
        write_table(table, out)
    else:
        print_rows(_plain_rows(table), form)


def write_table(table: "pyarrow.Table", out: Path) -> None:
    """Write a table to a .csv, .tsv or .parquet file, completely or not at all."""

    def write(temporary: Path) -> None:
        from pyarrow import parquet  # noqa: PLC0415

        if out.suffix.lower() == ".parquet":
            parquet.write_table(table, temporary)
            return
        with temporary.open("w", newline="", encoding="utf-8", errors="backslashreplace") as file:
            write_csv(file, _plain_rows(table), "\t" if out.suffix.lower() == ".tsv" else ",")

    replace_atomically(out, write)
    say(f"table   {out}")


def _plain_rows(table: "pyarrow.Table") -> Iterator[Row]:
    """Yield rows of text and numbers; a missing value is an empty cell."""
    for batch in table.to_batches(_AT_ONCE):
        for row in batch.to_pylist():
            yield {name: _plain(value) for name, value in row.items()}


def _plain(value: Any) -> str | int | float:
    if value is None:
        return ""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
