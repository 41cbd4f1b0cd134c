"""Rows of JSON and CSV: found by name, and refused with one sentence that names the cell."""

import json
import math

import pytest
import torch

from messi.core.batch import Column, InputSpec
from messi.core.errors import MessiError
from messi.serving.problems import ProblemError
from messi.serving.rows import read_csv, read_json

TABLE = InputSpec(
    shape=(5,),
    mean=(40.0, 0.0, 0.0, 0.0, 1.0),
    std=(10.0, 1.0, 1.0, 1.0, 2.0),
    columns=(
        Column("age", fill=40.0, indicator=True),
        Column("colour", categories=("blue", "red")),
        Column("weight, kg", fill=1.0),
    ),
)
PLAIN = InputSpec(shape=(3,))


def rows(*given: object) -> bytes:
    return json.dumps({"rows": given}).encode()


def test_columns_are_found_by_name_in_any_order_and_others_are_ignored() -> None:
    expected = torch.tensor([1.0, 0.0, 0.0, 1.0, 2.0])
    row = {"label": "x", " weight, kg": 5, "colour": "red", "age": 50.0}
    (found,) = read_json(rows(row), TABLE)
    torch.testing.assert_close(found.values, expected)
    (listed,) = read_json(rows([50, "red", 5]), TABLE)
    torch.testing.assert_close(listed.values, expected)
    (read,) = read_csv(b'\xef\xbb\xbfcolour,"weight, kg",label,age\r\nred,5,x,50\r\n\r\n', TABLE)
    torch.testing.assert_close(read.values, expected)
    assert found.notes == listed.notes == read.notes == ()


@pytest.mark.parametrize("empty", [None, "", " ", "NaN", "NA"])
def test_a_missing_value_is_filled_and_indicated(empty: str | None) -> None:
    (found,) = read_json(rows({"age": empty, "colour": empty, "weight, kg": empty}), TABLE)
    assert found.values.tolist() == [0.0, 1.0, 0.0, 0.0, 0.0]


def test_an_unseen_category_is_accepted_with_a_note() -> None:
    known, unseen = read_csv(b'age,colour,"weight, kg"\n40,red,1\n40,mauve,1\n', TABLE)
    assert known.notes == ()
    assert unseen.values.tolist() == [0.0, 0.0, 0.0, 0.0, 0.0]
    assert unseen.notes == ("Column 'colour': the category 'mauve' did not occur in training; known are: blue, red.",)


@pytest.mark.parametrize("written", ["10", "10.0", "10.", 10, 10.0])
def test_a_whole_number_is_the_same_category_whatever_the_other_rows_are(written: object) -> None:
    spec = InputSpec(shape=(2,), mean=(0.0, 0.0), std=(1.0, 1.0), columns=(Column("code", ("10", "11")),))
    for others in ([], [None], ["x"], [2.5]):
        first = read_json(rows([written], *([other] for other in others)), spec)[0]
        assert (first.values.tolist(), first.notes) == ([1.0, 0.0], ())
    (line,) = read_csv(f"code\n{written}\n".encode(), spec)
    assert (line.values.tolist(), line.notes) == ([1.0, 0.0], ())


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        (rows({"age": 1, "colour": "red"}), 422, "The feature 'weight, kg' is missing in the request; its columns are"),
        (rows({}), 422, "The feature 'age' is missing in the request"),
        (
            rows([1, "red", 2], [1, "red", "heavy"]),
            422,
            "'heavy' in row 2 of the request, column 'weight, kg' is not a",
        ),
        (rows([1, "red", "1e999"]), 422, "The number in row 1 of the request, column 'weight, kg' is infinite or too"),
        (rows([10**400, "red", 1]), 422, "The number in row 1 of the request, column 'age' is infinite or too large"),
        (rows([True, "red", 1]), 422, "'true' in row 1 of the request, column 'age' is not a number"),
        (
            rows({"age": [1], "colour": "red", "weight, kg": 1}),
            422,
            "The value in row 1 of the request, column 'age' must be a number, but is a list; send a single value.",
        ),
        (rows([1, "red", 2], [1, "red", [2, 3]]), 422, "row 2 of the request, column 'weight, kg' must be a number"),
        (rows([1, ["red"], 2]), 422, "row 1 of the request, column 'colour' must be text, but is a list"),
        (rows([1, {"a": 1}, 1]), 422, "Column 'colour' of the request has values of type struct"),
        (rows({"age": 1, "colour": "red", "weight, kg": 1}, {"age": 1}), 422, "Row 2 has other columns than row 1"),
        (rows([1, "red", 1], {"age": 1}), 422, "Rows must be all objects or all lists."),
        (rows([1, "red"]), 422, "Row 1 has 2 values, but the model takes 3."),
        (
            rows({"age": 1, "age ": 2}),
            422,
            "The rows have several columns named 'age'; every column needs its own name.",
        ),
        (rows(7), 422, "The body must be an object with a list of rows"),
        (b"[]", 422, "The body must be an object with a list of rows"),
        (b'{"rows": [[NaN, "red", 1]]}', 400, "NaN is not a number of JSON; write null for a missing value"),
        (b'{"rows": ', 400, "The body is not JSON"),
        (b"[" * 100_000, 400, "it is nested too deeply"),
        (b'{"rows": "\xff"}', 400, "The body is not UTF-8: byte 10 is not valid."),
    ],
)
def test_json_that_does_not_fit_gives_one_sentence(body: bytes, status: int, sentence: str) -> None:
    with pytest.raises((ProblemError, MessiError)) as caught:
        read_json(body, TABLE)
    assert getattr(caught.value, "status", 422) == status
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        (b"age,colour\n1,red\n", 422, "The feature 'weight, kg' is missing"),
        (b"age,age\n1,1\n", 422, "names a column twice"),
        (b"age,colour\n1\n", 422, "Row 1 has 1 cells, but the first line has 2 names."),
        (b'age,"colour\n', 400, "The body is not CSV"),
    ],
)
def test_csv_that_does_not_fit_gives_one_sentence(body: bytes, status: int, sentence: str) -> None:
    with pytest.raises((ProblemError, MessiError)) as caught:
        read_csv(body, TABLE)
    assert getattr(caught.value, "status", 422) == status
    assert sentence in str(caught.value)


def test_features_without_names_are_rows_of_numbers() -> None:
    (first, second) = read_csv(b"1,2,3\n4,5,6\n", PLAIN)
    assert (first.values.tolist(), second.values.tolist()) == ([1, 2, 3], [4, 5, 6])
    with pytest.raises(ProblemError, match="have no names; send rows as lists of 3 numbers"):
        read_json(rows({"a": 1}), PLAIN)
    for listed in ([[1], 2, 3], [[1, 2], 3, 4]):
        with pytest.raises(ProblemError, match="row 1 of the request, column '0' must be a number, but is a list"):
            read_json(rows(listed), PLAIN)
    with pytest.raises(MessiError, match="'a' in row 1 of the request, column '0' is not a number"):
        read_csv(b"a,b,c\n1,2,3\n", PLAIN)
    assert read_csv(b"", PLAIN) == []
    assert math.isclose(float(first.values.sum()), 6)


def test_the_numbers_of_a_vector_are_a_list() -> None:
    spec = InputSpec((2,), (0.0, 0.0), (1.0, 1.0), (Column("embedding[0]"), Column("embedding[1]")))
    (found,) = read_json(rows({"embedding": [3, 4]}), spec)
    assert found.values.tolist() == [3, 4]
