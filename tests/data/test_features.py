"""Features are encoded by statistics of the training part, as scikit-learn would do it."""

import math

import numpy as np
import pytest
import torch
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from messi.core.batch import Column, InputSpec
from messi.core.errors import MessiError
from messi.data.features import UNSEEN, constant_features, encode, fit_spec, require_consistent, row_numbers

RANDOM = np.random.default_rng(0)
TRAIN = torch.arange(0, 40_000, 2)
KINDS = ("tall", "short", "round", "flat")


def raw() -> tuple[torch.Tensor, tuple[Column, ...]]:
    """Return 40,000 rows, which are several chunks: numbers of all scales, missing values and categories."""
    numbers = RANDOM.normal(size=(40_000, 5)) * [1, 1e-4, 1e6, 1, 1] + [0, 1, 1e8, 5, 0]
    numbers[:, 3] = 0.1
    numbers[RANDOM.random(40_000) < 0.3, 4] = math.nan
    kinds = RANDOM.integers(0, 3, (40_000, 1)).astype(float)
    kinds[1::100] = 3  # only outside of the training part
    kinds[RANDOM.random(40_000) < 0.1] = math.nan
    columns = (*(Column(f"n{i}") for i in range(5)), Column("kind", KINDS))
    return torch.from_numpy(np.hstack([numbers, kinds])), columns


def test_the_encoding_is_that_of_scikit_learn() -> None:
    values, columns = raw()
    spec = fit_spec(values, TRAIN, columns, "standardise")
    encoded = encode(values, spec, columns)
    frame = values.numpy()
    theirs = ColumnTransformer(
        [
            ("numbers", make_pipeline(SimpleImputer(), StandardScaler()), [0, 1, 2, 3, 4]),
            ("missing", make_pipeline(SimpleImputer(add_indicator=True)), [4]),
            ("kinds", OneHotEncoder(handle_unknown="ignore", categories=[[0.0, 1.0, 2.0]], sparse_output=False), [5]),
        ]
    ).fit(frame[TRAIN.numpy()])
    wanted = np.delete(theirs.transform(frame), 5, axis=1)  # without n4 itself before its indicator
    np.testing.assert_allclose(encoded[:, :9], wanted, atol=2e-6)
    assert encoded.shape == (40_000, 10)
    assert torch.equal(encoded[:, 9], values[:, 5].isnan().float())  # a missing category has an indicator
    assert [column.categories for column in spec.columns] == [None] * 5 + [KINDS[:3]]
    unseen = values[:, 5] == 3
    assert unseen.any()
    assert not encoded[unseen][:, 6:].any()
    assert encoded.isfinite().all()
    assert encoded.dtype == torch.float32


@pytest.mark.parametrize("columns", [True, False])
def test_rows_outside_of_the_training_part_do_not_influence_the_statistics(*, columns: bool) -> None:
    values, names = raw()
    if not columns:
        values, names = values[:, :4], ()
    changed = values.clone()
    changed[1::2] = 1e30 * torch.randn_like(changed[1::2])
    changed[1::2, -1] = math.nan
    changed[1::2, 3] = math.nan
    assert fit_spec(changed, TRAIN, names, "standardise") == fit_spec(values, TRAIN, names, "standardise")


def test_numbers_without_names_need_no_columns_unless_some_are_missing_in_training() -> None:
    values = torch.tensor([[1.0, 5], [3, 5], [math.nan, 5]])
    spec = fit_spec(values, torch.tensor([0, 1]), (), "standardise")
    assert spec == InputSpec((2,), (2.0, 5.0), (1.0, 1.0))
    assert encode(values, spec).tolist() == [[-1, 0], [1, 0], [0, 0]]
    filled = fit_spec(values, torch.tensor([0, 1, 2]), (), "standardise")
    assert filled.columns == (Column("0", fill=2.0, indicator=True), Column("1", fill=5.0))
    assert filled.shape == (3,)
    scale = math.sqrt(2 / 3)
    torch.testing.assert_close(encode(values, filled), torch.tensor([[-1 / scale, 0, 0], [1 / scale, 0, 0], [0, 1, 0]]))
    unscaled = fit_spec(values, torch.tensor([0, 1, 2]), (), "none")
    assert encode(values, unscaled).tolist() == [[1, 0, 5], [3, 0, 5], [2, 1, 5]]


def test_a_model_of_an_earlier_version_uses_features_as_they_are() -> None:
    values = torch.randn(5, 3)
    assert encode(values, InputSpec((3,))) is values
    assert fit_spec(values, torch.arange(5)) == InputSpec((3,))
    values[2, 1] = math.nan
    with pytest.raises(MessiError, match=r"infinite values or NaN: 1 in 1 of 5 rows, the first in row 2, column 1"):
        encode(values, InputSpec((3,)))


def test_a_column_without_any_value_in_training_is_harmless() -> None:
    values = torch.tensor([[math.nan, 1.0], [math.nan, 2.0], [7.0, 3.0]])
    spec = fit_spec(values, torch.tensor([0, 1]), (), "standardise")
    assert encode(values, spec).isfinite().all()
    assert constant_features(values, torch.tensor([0, 1])) == ["0"]
    assert constant_features(values, torch.arange(3), (Column("a"), Column("b"))) == []


def test_extreme_numbers_stay_finite() -> None:
    values = torch.tensor([[1e-40, 3e38], [-1e-40, -3e38], [3e38, 1.0]], dtype=torch.float64)
    spec = fit_spec(values, torch.tensor([0, 1]), (), "standardise")
    assert all(math.isfinite(number) and number > 0 for number in spec.std)
    assert encode(values, spec).isfinite().all()


def test_columns_are_matched_by_name_and_others_are_ignored() -> None:
    columns = (Column("a"), Column("b", ("x", "y")))
    values = torch.tensor([[1.0, 0], [2, 1], [3, 1]])
    spec = fit_spec(values, torch.arange(3), columns, "standardise")
    other = (Column("extra"), Column("b", ("z", "y", "x")), Column("a"))
    again = torch.tensor([[9.0, 2, 1], [9, 1, 2], [9, 1, 3], [9, 0, 2], [9, UNSEEN, 2], [9, math.nan, math.nan]])
    encoded = encode(again, spec, other)
    assert torch.equal(encoded[:3], encode(values, spec, columns))
    assert encoded[3:].tolist() == [[0, 0, 0]] * 3  # unseen, unseen and missing


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ((Column("a"), Column("c")), "The feature 'b' is missing; the columns are: a, c"),
        ((Column("a"), Column("b")), "Column 'b' must contain categories, as in training, but contains numbers"),
        (
            (Column("a", ("1",)), Column("b", ("x",))),
            "Column 'a' must contain numbers, as in training, but contains text",
        ),
        ((), "Column 'b' has categories; give rows with the same named columns"),
    ],
)
def test_columns_that_do_not_fit_are_named(columns: tuple[Column, ...], sentence: str) -> None:
    spec = InputSpec((2,), (0.0, 0.0), (1.0, 1.0), (Column("a"), Column("b", ("x",))))
    with pytest.raises(MessiError, match=sentence):
        encode(torch.zeros(1, 2), spec, columns)


def test_a_wrong_number_of_features_is_named() -> None:
    for spec in (InputSpec((3,)), InputSpec((3,), (0.0,) * 3, (1.0,) * 3)):
        with pytest.raises(MessiError, match=r"rows of 3 features, but the input has the shape \[4, 2\]"):
            encode(torch.zeros(4, 2), spec)


@pytest.mark.parametrize(
    "spec",
    [
        InputSpec((2,), (0.0,), (1.0,)),
        InputSpec((2,), (0.0, 0.0), ()),
        InputSpec((2,), (0.0, 0.0), (1.0, 0.0)),
        InputSpec((2,), (0.0, 0.0), (1.0, 1.0), (Column("a"),)),
        InputSpec((1,), (), (), (Column("a"),)),
    ],
)
def test_a_spec_that_contradicts_itself_is_refused(spec: InputSpec) -> None:
    with pytest.raises(ValueError, match="features"):
        require_consistent(spec)


def test_columns_that_number_the_examples_are_found() -> None:
    order = torch.from_numpy(RANDOM.permutation(20)).double()
    repeated, gap, halves, few_missing = order.clone(), order.clone(), order + 0.5, order.clone()
    repeated[0], gap[order == 19], few_missing[3] = repeated[1], 20, math.nan
    given = {"id": order + 1001, "r": repeated, "gap": gap, "halves": halves, "missing": few_missing, "kind": order}
    columns = [Column(name, KINDS if name == "kind" else None) for name in given]
    values = torch.stack(list(given.values()), dim=1)
    assert row_numbers(values, columns) == ["id"]
    assert row_numbers(order[order < 19, None], [Column("id")]) == [], "too few rows to tell"
