"""From a pandas data frame to numbers and categories; only a caller who has one needs pandas."""

from collections.abc import Sequence
from typing import Any

import pyarrow

from messi.core.batch import Column
from messi.core.text import plain_name
from messi.data.cells import Source, read_known, read_rows
from messi.data.datasets.common.tables import require_distinct
from messi.data.features import Rows

FRAME = Source("the data frame", 0)


def read_frame(frame: Any, wanted: Sequence[Column]) -> Rows:
    """Return the rows of a pandas data frame; the columns of a model whose features have no names are in its order."""
    cells = from_frame(frame)
    return read_known(cells, wanted, FRAME) if wanted else read_rows(cells, FRAME, kinds={})


def from_frame(frame: Any) -> dict[str, "pyarrow.ChunkedArray"]:
    """Return the columns of a pandas data frame by name."""
    names = [plain_name(str(name)) for name in frame.columns]
    require_distinct(names, "The data frame")
    columns = {}
    for name, (_, values) in zip(names, frame.items(), strict=True):
        try:
            array = pyarrow.Array.from_pandas(values)
        except (pyarrow.ArrowException, TypeError):  # values of several types
            array = None
        if array is None or _has_objects(array.type):
            array = _texts(values)
        columns[name] = pyarrow.chunked_array([array])
    return columns


def _has_objects(type_: Any) -> bool:
    """Return whether categories are objects such as pandas' intervals."""
    if not pyarrow.types.is_dictionary(type_):
        return False
    return pyarrow.types.is_nested(type_.value_type) or isinstance(type_.value_type, pyarrow.BaseExtensionType)


def _texts(values: Any) -> "pyarrow.Array":
    """Return the text of every value of a pandas column."""
    if hasattr(values, "cat"):  # a value of the column itself is another one, (0.0, 1.0], if some are missing
        names = [str(category) for category in values.cat.categories]
        return pyarrow.array([None if code < 0 else names[code] for code in values.cat.codes], pyarrow.string())
    known = zip(values, values.isna(), strict=True)
    return pyarrow.array([None if missing else str(value) for value, missing in known], pyarrow.string())
