"""The cells of a table become numbers and categories, or an error names the row and the column."""

import datetime
import math
import unicodedata

import numpy as np
import pandas
import pyarrow
import pytest
import torch

from messi.core.batch import Column
from messi.core.errors import MessiError
from messi.data.cells import Source, read_known, read_names, read_rows
from messi.data.features import Rows
from messi.data.frames import read_frame

SOURCE = Source("t.csv", 2)


def cells(values: object, kind: object = None) -> "pyarrow.ChunkedArray":
    return pyarrow.chunked_array([pyarrow.array(values, kind)])


def read(values: object, kind: object = None, **options: object) -> Rows:
    return read_rows({"c": cells(values, kind)}, SOURCE, kinds={}, **options)  # type: ignore[arg-type]


def floats(rows: Rows) -> list[float]:
    return [round(value, 9) for value in rows.values[:, 0].nan_to_num(-99).tolist()]


@pytest.mark.parametrize(
    ("values", "numbers"),
    [
        (["1", " 2.5 ", "-3e2", "+4", ".5", "6."], [1, 2.5, -300, 4, 0.5, 6]),
        (["1", "", "NaN", "na", "NULL", "n/a", " ", None], [1] + [-99] * 7),
        ([None, ""], [-99, -99]),
    ],
)
def test_text_that_is_always_a_number_or_missing_is_numbers(values: list[str], numbers: list[float]) -> None:
    rows = read(values, pyarrow.string())
    assert rows.columns == (Column("c"),)
    assert floats(rows) == numbers


@pytest.mark.parametrize(
    "kind", [pyarrow.int8(), pyarrow.uint64(), pyarrow.float16(), pyarrow.float32(), pyarrow.decimal128(5, 2)]
)
def test_every_type_of_number_is_numbers(kind: object) -> None:
    values = np.array([1, 2], np.float16) if kind == pyarrow.float16() else [1, 2]
    rows = read(values, kind)
    assert (rows.columns, floats(rows)) == ((Column("c"),), [1, 2])
    assert rows.values.dtype == torch.float64


@pytest.mark.parametrize(
    ("values", "kind", "names", "codes"),
    [
        (["b", "a", " b ", "NA", None], pyarrow.string(), ("a", "b"), [1, 0, 1, -99, -99]),
        (["x", "10", "9", "x", "x", "x"], pyarrow.large_string(), ("x", "9", "10"), [0, 2, 1, 0, 0, 0]),
        (["True", "false", "TRUE", ""], pyarrow.string(), ("false", "true"), [1, 0, 1, -99]),
        ([True, False, True, None], pyarrow.bool_(), ("false", "true"), [1, 0, 1, -99]),
        (["u", "v", None], pyarrow.dictionary(pyarrow.int8(), pyarrow.string()), ("u", "v"), [0, 1, -99]),
    ],
)
def test_other_text_and_truth_values_are_categories(
    values: list[object], kind: object, names: tuple[str, ...], codes: list[int]
) -> None:
    rows = read(values, kind)
    assert rows.columns == (Column("c", names),)
    assert floats(rows) == codes


def test_numbers_are_categories_on_request_and_the_same_in_every_format() -> None:
    for values in (["1", "22", ""], [1, 22, None], [1.0, 22.0, math.nan]):
        rows = read_rows({"c": cells(values)}, SOURCE, kinds={"c": "categories"})
        assert rows.columns == (Column("c", ("1", "22")),)
        assert floats(rows) == [0, 1, -99]


@pytest.mark.parametrize(
    ("values", "name"),
    [
        (["10.0", "10", "10.", 10, 10.0], "10"),
        (["-3.0", "-3", -3, -3.0], "-3"),
        (["0.0", "0", 0, 0.0], "0"),
        (["0.1", 0.1], "0.1"),
        (["2.5", 2.5], "2.5"),
    ],
)
def test_a_number_is_one_category_however_it_is_written(values: list[object], name: str) -> None:
    for value in values:
        for column in ([value], [value, None], ["x", str(value)]):
            rows = read_rows({"c": cells(column)}, SOURCE, kinds={"c": "categories"})
            assert set(rows.columns[0].categories or ()) - {"x"} == {name}, column
            known = read_known({"c": cells(column)}, (Column("c", ("7", name)),), SOURCE)
            assert set(known.columns[0].categories or ()) - {"x"} == {name}, column
    frame = pandas.DataFrame({"c": pandas.Series([values[0], "x", *values[1:]], dtype=object)})
    assert set(read_frame(frame, (Column("c", (name,)),)).columns[0].categories or ()) == {name, "x"}


@pytest.mark.parametrize(
    "code",
    ["1.10", "2.0.1", "007", "007.0", "1e3", "00.0", "250.00", "+1.0", ".0", "-.0", "1.0a", "1,0", "v1.0", "1 .0"],
)
def test_a_code_that_is_no_plain_number_keeps_its_spelling(code: str) -> None:
    rows = read_rows({"c": cells([code, "x"])}, SOURCE, kinds={"c": "categories"})
    assert set(rows.columns[0].categories or ()) == {code, "x"}


def test_the_categories_of_an_earlier_model_keep_their_spelling() -> None:
    for given in (["10", "11.0", ""], ["10.0", "11.", ""], [10, 11, None], [10.0, 11.0, None]):
        rows = read_known({"c": cells(given)}, (Column("c", ("10.0", "11.0")),), SOURCE)
        assert (rows.columns, floats(rows)) == ((Column("c", ("10.0", "11.0")),), [0, 1, -99])
    rows = read_known({"c": cells(["10", "10.0"])}, (Column("c", ("10", "10.0")),), SOURCE)
    assert floats(rows) == [1, 0], "a model that distinguishes them still does"
    rows = read_known({"c": cells([0.1, 2.5])}, (Column("c", ("0.10000000000000001", "2.5")),), SOURCE)
    assert rows.columns == (Column("c", ("0.10000000000000001", "2.5")),)


def test_lists_are_one_column_per_place() -> None:
    for kind in (
        pyarrow.list_(pyarrow.float32()),
        pyarrow.large_list(pyarrow.int16()),
        pyarrow.list_(pyarrow.int8(), 2),
    ):
        rows = read([[1, 2], None, [3, 4]], kind)
        assert [column.name for column in rows.columns] == ["c[0]", "c[1]"]
        assert rows.values.nan_to_num(-99).tolist() == [[1, 2], [-99, -99], [3, 4]]


@pytest.mark.parametrize(
    ("values", "kind", "sentence"),
    [
        (["1", "2", "1,5"], None, r"'1,5' in row 4 of t.csv, column 'c' is not a number with a decimal point; correct"),
        (["1", "x", "3"], None, r"'x' in row 3 of t.csv, column 'c' is not a number; correct it, or .* --categories c"),
        (["1", "0x10", "3"], None, r"'0x10' in row 3 of t.csv, column 'c' is not a number"),
        (["1", "-inf"], None, r"number in row 3 of t.csv, column 'c' is infinite or too large; replace it"),
        (["1e999", "1"], None, r"number in row 2 of t.csv, column 'c' is infinite or too large"),
        ([1.0, math.inf], None, r"number in row 3 of t.csv, column 'c' is infinite"),
        ([1.0, 1e39], None, r"number in row 3 of t.csv, column 'c' is infinite or too large"),
        (
            [[1.0], [2.0, 3.0]],
            None,
            r"list in row 3 of t.csv, column 'c' has 2 numbers, but the first has 1; all lists",
        ),
        ([[1.0, 0], [2.0, math.inf]], None, r"number in row 3 of t.csv, column 'c' is infinite"),
        ([[], []], pyarrow.list_(pyarrow.float32()), r"Column 'c' of t.csv has no numbers; fill it in or ignore it"),
        ([["a"], ["b"]], None, r"Column 'c' of t.csv must have lists of numbers"),
        (
            [f"p{i}" for i in range(11)],
            None,
            r"Column 'c' .* has 11 different texts, such as 'p0', .* --ignore c, or keep",
        ),
        ([f"p{i % 101}" for i in range(999)], None, r"has 101 different texts"),
        (
            [datetime.date(2026, 1, 1)],
            None,
            r"Column 'c' of t.csv has dates or times; convert it to numbers or text, or",
        ),
        (["2026-11-19", "2026-1-2T10:00"], None, r"has dates or times, such as '2026-1-2T10:00'; .* or keep it as cat"),
        (["19.11.2026", "1/2/2026", ""], None, r"Column 'c' of t.csv has dates or times, .* --categories c\."),
        (["a", "x" * 1001], None, r"text in row 3 of t.csv, column 'c' has more than 1,000 characters, which is too"),
        ([{"a": 1}], None, r"Column 'c' of t.csv has values of type struct"),
        ([b"x"], None, r"has values of type binary"),
    ],
)
def test_a_cell_that_cannot_be_used_is_named(values: list[object], kind: object, sentence: str) -> None:
    with pytest.raises(MessiError, match=sentence) as raised:
        read(values, kind)
    assert "\n" not in str(raised.value)


def test_a_column_with_many_categories_is_kept_if_it_is_named() -> None:
    rows = read([f"p{i}" for i in range(300)], named=["c"])
    assert len(rows.columns[0].categories or ()) == 300
    assert len(read([f"p{i % 100}" for i in range(999)]).columns[0].categories or ()) == 100
    assert len(read(["a", "b", "c"]).columns[0].categories or ()) == 3, "few texts need not be repeated"


def test_dates_are_categories_if_they_are_named_and_so_are_months() -> None:
    days = ["2026-11-19", "2026-11-20"]
    assert read(days, named=["c"]).columns[0].categories == tuple(days)
    assert read([*days, "never"]).columns[0].categories == (*days, "never")
    assert read(["2026-11", "2026-12"]).columns[0].categories == ("2026-11", "2026-12")


def test_composed_and_decomposed_characters_are_the_same() -> None:
    decomposed, composed = (unicodedata.normalize(form, "größe") for form in ("NFD", "NFC"))
    assert decomposed != composed
    rows = read([decomposed, composed, "b"])
    assert (rows.columns[0].categories, floats(rows)) == (("b", composed), [1, 1, 0])
    assert read_names(cells([decomposed, composed, "b"]), "label", SOURCE)[0] == ("b", composed)
    for stored in (decomposed, composed):  # models of earlier versions may have either
        known = read_known({composed: cells([composed, decomposed])}, [Column(stored, ("b", stored))], SOURCE)
        assert known.columns == (Column(stored, (stored,)),)
        assert floats(known) == [0, 0]


def test_columns_of_a_model_are_found_by_name_and_keep_their_kind() -> None:
    wanted = (Column("a"), Column("zip", ("1", "22")), Column("e[0]"), Column("e[1]"))
    given = {"zip": cells([22, 5]), "other": cells([b"?", b"!"]), "e": cells([[1, 2], [3, 4]]), "a": cells(["7", ""])}
    rows = read_known(given, wanted, SOURCE)
    assert [column.name for column in rows.columns] == ["a", "zip", "e[0]", "e[1]"]
    assert rows.columns[1].categories == ("5", "22")
    assert rows.values.nan_to_num(-99).tolist() == [[7, 1, 1, 2], [-99, 0, 3, 4]]
    with pytest.raises(MessiError, match=r"The feature 'e' is missing in t.csv; its columns are: zip, a\."):
        read_known({name: given[name] for name in ("zip", "a")}, wanted, SOURCE)
    with pytest.raises(MessiError, match=r"'one' in row 3 of t.csv, column 'a' is not a number; give numbers as in tr"):
        read_known(given | {"a": cells(["1", "one"])}, wanted, SOURCE)
    with pytest.raises(MessiError, match=r"'two' in row 2 of t.csv, column 'a' is not a number"):
        read_known(given | {"a": cells(["two", "one"])}, wanted, SOURCE)


def test_names_are_sorted_and_an_empty_one_is_an_error() -> None:
    names, indices = read_names(cells(["10", " b", "9", "b "]), "label", SOURCE)
    assert (names, indices.tolist()) == (("b", "9", "10"), [2, 0, 1, 0])
    assert read_names(cells([1.0, 0.0]), "label", SOURCE)[0] == ("0", "1")
    for values in (["a", " "], ["a", None], [1.0, math.nan]):
        with pytest.raises(MessiError, match=r"An empty cell in row 3 of t.csv, column 'label'; fill it in"):
            read_names(cells(values), "label", SOURCE)
