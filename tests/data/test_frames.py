"""The columns of a pandas data frame become numbers and categories."""

import datetime
import math

import pandas
import pyarrow
import pytest

from messi.core.batch import Column
from messi.core.errors import MessiError
from messi.data.cells import Source, read_known
from messi.data.features import Rows
from messi.data.frames import read_frame

SOURCE = Source("t.csv", 2)


def numbers(rows: Rows) -> list[float]:
    return [float(value) for value in rows.values[:, 0].nan_to_num(-99)]


def test_a_data_frame_of_any_types_is_read() -> None:
    frame = pandas.DataFrame(
        {
            "a": [1, None, 3],
            "b": pandas.Categorical(["x", "y", "x"]),
            "m": [1, "z", "z"],
            "t": [True, False, True],
            5: [0.5, 1, 2],
        }
    )
    rows = read_frame(frame, ())
    assert [(column.name, column.categories) for column in rows.columns] == [
        ("a", None), ("b", ("x", "y")), ("m", ("z", "1")), ("t", ("false", "true")), ("5", None),
    ]  # fmt: skip
    assert rows.values.nan_to_num(-99).tolist() == [[1, 0, 1, 1, 0.5], [-99, 1, 0, 0, 1], [3, 0, 0, 1, 2]]
    assert read_frame(pandas.DataFrame({"e\u0301": [1]}), ()).columns[0].name == "é"
    with pytest.raises(MessiError, match=r"'y' in row 1 of the data frame, counted from 0, column 'b' is not a number"):
        read_frame(frame.assign(b=["1", "y", "3"]), (Column("b"),))


@pytest.mark.parametrize(
    ("values", "names"),
    [
        (pandas.cut([1.0, 2, 30, math.nan], [0, 10, 40]), ("(0, 10]", "(10, 40]")),
        (pandas.Categorical([(1, 2), (1, 2), (3, 4), None]), ("(1, 2)", "(3, 4)")),
        (pandas.Categorical(["x", "x", 1, None]), ("x", "1")),
        (pandas.Series(["x", "x", 1, pandas.NA], dtype=object), ("x", "1")),
    ],
)
def test_categories_that_are_not_text_are_named_by_their_text(values: object, names: tuple[str, ...]) -> None:
    rows = read_frame(pandas.DataFrame({"c": values}), ())
    assert rows.columns == (Column("c", names),)
    assert len(set(numbers(rows)[:2])) == 1
    assert len(set(numbers(rows))) == 3
    assert numbers(rows)[3] == -99


@pytest.mark.parametrize("day", [datetime.date(2026, 1, 1), pandas.Timestamp("2026-01-01"), pandas.Timedelta(1)])
def test_categories_that_are_dates_are_refused_like_dates(day: object) -> None:
    """Their text depends on the program that writes it."""
    for values in (pandas.Categorical([day]), pandas.Series([day])):
        with pytest.raises(MessiError, match=r"Column 'c' of the data frame has dates or times; convert it"):
            read_frame(pandas.DataFrame({"c": values}), ())


def test_blanks_around_the_names_of_columns_do_not_matter() -> None:
    frame = pandas.DataFrame({" a": [1.0], "b ": ["x"]})
    rows = read_frame(frame, (Column("a"), Column("b", ("x",))))
    assert (rows.columns, rows.values.tolist()) == ((Column("a"), Column("b", ("x",))), [[1, 0]])
    given = {"a": pyarrow.chunked_array([[1]]), "v": pyarrow.chunked_array([[[2]]])}
    earlier = (Column(" a"), Column(" v[0]"))  # the names of a model of an earlier version
    assert read_known(given, earlier, SOURCE).columns == earlier
    for names in (["a", " a"], ["5", 5], ["a", "a"]):
        with pytest.raises(MessiError, match=r"^The data frame has several columns named '.'; rename all but one\.$"):
            read_frame(pandas.DataFrame([[1, 2]], columns=names), ())
