from dataclasses import replace

import pytest

from messi.core.errors import MessiError
from messi.reports.cell_text import number
from messi.reports.paper_tables import Cell, Column, Row
from messi.reports.statistics import Summary

from .paper_table_sample import ERM, MESSI, PROVENANCE, TABLE


def test_the_caption_says_how_the_numbers_came_about() -> None:
    for part in (
        "PACS (version 1)",
        "messi; steps 300",
        "source_val",
        "part: all",
        "0, 1, 2 (n = 3",
        "ddof = 1",
        "abc1234",
    ):
        assert part in TABLE.caption
    error = replace(TABLE, provenance=replace(PROVENANCE, dispersion="standard error"))
    assert "standard error (ddof = 0)" in error.caption


def test_a_difference_needs_both_numbers() -> None:
    assert ERM.cells[0].difference == pytest.approx(-0.16)
    assert ERM.cells[1].difference is None
    assert MESSI.cells[1].difference is None


@pytest.mark.parametrize(
    ("value", "digits", "shown"),
    [
        (None, 1, ""),
        (-0.04, 1, "0.0"),
        (0.04, 1, "0.0"),
        (-0.06, 1, "\u22120.1"),
        (2.0, 2, "+2.00"),
        (1234.5, 0, "+1234"),
    ],
)
def test_a_signed_number(value: float | None, digits: int, shown: str) -> None:
    assert number(value, digits, signed=True) == shown


def test_the_best_is_best_as_shown() -> None:
    # 1.26 and 1.34 both read 1.3; the paper's numbers and empty cells do not compete.
    best = [[TABLE.is_best(cell, place) for place, cell in enumerate(row.cells)] for row in TABLE.rows]
    assert best == [[False, True], [False, True], [True, False]]


def test_the_best_follows_the_direction_and_ignores_what_is_not_finite() -> None:
    cells = [Cell(Summary(value, None, 1)) for value in (float("nan"), 1.0, 3.0)]
    for direction, expected in (("up", 2), ("down", 1)):
        rows = tuple(Row(("m", "b"), (cell,)) for cell in cells)
        table = replace(TABLE, columns=(Column("x", direction),), groups=(rows,))  # type: ignore[arg-type]
        assert [table.is_best(cell, 0) for cell in cells] == [place == expected for place in range(3)]
    neutral = replace(TABLE, columns=(Column("x", "none"),), groups=(tuple(Row(("m", "b"), (c,)) for c in cells),))
    assert not any(neutral.is_best(cell, 0) for cell in cells)


def test_a_lone_value_is_not_called_best() -> None:
    table = replace(TABLE, groups=((MESSI,),))
    assert not table.is_best(MESSI.cells[0], 0)


def test_a_row_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(MessiError, match=r"'main' must have 2 heads and 2 cells, but has 2 and 1"):
        replace(TABLE, groups=((Row(("a", "b"), (Cell(),)),),))
