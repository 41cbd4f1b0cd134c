from dataclasses import replace

import pytest

from messi.core.errors import MessiError
from messi.reports.statistics import Summary
from messi.reports.table import Cell, Column, Direction, Provenance, Published, Row, Table

from .table_sample import ERM, MESSI, PROVENANCE, TABLE

UP = Column("x")


def test_the_caption_states_how_the_numbers_were_obtained() -> None:
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


def table_of(*cells: Cell, seeds: tuple[int, ...] = (0, 1, 2), column: Column = UP) -> Table:
    rows = tuple(Row(("m", "b"), (cell,)) for cell in cells)
    return replace(TABLE, provenance=replace(PROVENANCE, seeds=seeds), columns=(column,), groups=(rows,))


def test_the_caption_explains_only_signs_in_the_table() -> None:
    value, spread = Cell(Summary(1.0, None, 1)), Cell(Summary(1.0, 0.5, 3))
    signs = {"±": spread, "In brackets": replace(value, paper=Published(2.0)), "Empty cells": Cell()}
    for sign, cell in signs.items():
        assert sign in table_of(value, cell).caption
        assert sign not in table_of(value).caption
    # Brackets need both numbers; the paper's own deviation is not the one that the sentence is about.
    assert "In brackets" not in table_of(Cell(paper=Published(2.0, 0.1))).caption
    assert "±" not in table_of(replace(value, paper=Published(2.0, 0.1))).caption


@pytest.mark.parametrize(
    ("seeds", "over_seeds", "said"),
    [
        ((0, 1), True, "part: all. Mean over seeds 0, 1 (n = 2 unless a cell says otherwise). Version"),
        ((4,), True, "part: all. Seed 4. Version"),
        ((0, 1), False, "part: all. Seeds 0, 1. Version"),
        ((4,), False, "part: all. Seed 4. Version"),
        ((), False, "part: all. Version"),
    ],
)
def test_the_caption_names_the_seeds(seeds: tuple[int, ...], over_seeds: bool, said: str) -> None:
    table = table_of(Cell(Summary(1.0, None, len(seeds))), seeds=seeds)
    assert said in replace(table, over_seeds=over_seeds).caption


def test_the_caption_of_an_untrained_table_omits_training() -> None:
    table = replace(table_of(Cell(Summary(1.0, None, 1))), provenance=Provenance(version="0.1.0"), over_seeds=False)
    assert table.caption == "Results. Version: 0.1.0."


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
    assert Column("x", digits=digits).show(value, signed=True) == shown


def best_of(*values: float, direction: Direction = "up") -> list[float]:
    """Return the best of some values, each over three seeds."""
    table = table_of(*(Cell(Summary(value, None, 3)) for value in values), column=Column("x", direction))
    return [cell.ours.mean for row in table.rows for cell in row.cells if cell.ours and table.is_best(cell, 0)]


def test_the_best_is_best_as_shown() -> None:
    # Of 86.0 and 87.3 over three seeds; 90.5 is over one, and the paper's numbers and empty cells do not compete.
    best = [[TABLE.is_best(cell, place) for place, cell in enumerate(row.cells)] for row in TABLE.rows]
    assert best == [[False, False], [False, False], [True, False], [False, False]]
    assert best_of(1.26, 1.34, 1.24) == [1.26, 1.34]  # both read 1.3


def test_the_best_follows_the_direction_and_ignores_values_that_are_not_finite() -> None:
    values = (float("nan"), 1.0, 3.0)
    assert [best_of(*values, direction=direction) for direction in ("up", "down", "none")] == [[3.0], [1.0], []]


def test_nothing_is_best_without_another_to_beat() -> None:
    assert best_of(1.0) == []
    assert best_of(1.26, 1.34) == []  # equal as shown


def test_the_caption_explains_bold_if_it_occurs() -> None:
    low, high, part = (Cell(Summary(value, None, n)) for value, n in ((1.0, 3), (2.0, 3), (3.0, 2)))
    assert "Bold: the best of a column." in table_of(low, high).caption
    assert "Bold: the best of a column, of the cells over all seeds." in table_of(low, high, part).caption
    assert "Bold" not in table_of(low, part).caption


@pytest.mark.parametrize("n", [2, 4])
def test_the_best_is_sought_among_cells_over_all_seeds(n: int) -> None:
    low, high, other = (Cell(Summary(value, None, 3)) for value in (1.0, 2.0, 3.0))
    more = replace(other, ours=Summary(3.0, None, n))
    table = table_of(low, high, more)
    assert [table.is_best(cell, 0) for cell in (low, high, more)] == [False, True, False]
    assert not table_of(low, more).is_best(low, 0)


def test_a_row_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(MessiError, match=r"'main' must have 2 heads and 2 cells, but has 2 and 1"):
        replace(TABLE, groups=((Row(("a", "b"), (Cell(),)),),))
