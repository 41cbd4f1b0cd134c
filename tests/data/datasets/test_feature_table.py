"""Tables of features, in the forms that occur in practice, and hostile ones."""

import dataclasses
import os
import time
import unicodedata
from pathlib import Path

import numpy as np
import pandas
import pyarrow
import pytest
import torch
from pyarrow import parquet

from messi.core.batch import Column
from messi.core.errors import MessiError
from messi.data.datasets.common import tables
from messi.data.datasets.feature_table import FeatureTable
from messi.data.seen_examples import example_digests

FRAME = pandas.DataFrame(
    {
        "id": [f"patient {i}" for i in range(12)],
        "age": [30.0, None, 50, 61, 72.5, 18, 22, None, 40, 41, 42, 43],
        "ward": ["north", "south", None] * 4,
        "zip": [101, 102, 101, 103] * 3,
        "smoker": [True, False] * 6,
        "hospital": ["A"] * 4 + ["B"] * 4 + ["C"] * 4,
        "diagnosis": ["sick", "healthy"] * 6,
    }
)
OPTIONS = {"label_column": "diagnosis", "domain_column": "hospital", "ignore": ("id",)}


def table(path: Path, **options: object) -> FeatureTable:
    return FeatureTable(path=str(path), **{**OPTIONS, **options})  # type: ignore[arg-type]


def written(folder: Path, text: str) -> FeatureTable:
    (folder / "t.csv").write_text(text)
    return FeatureTable(path=str(folder / "t.csv"))


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    FRAME.to_csv(tmp_path / "t.csv", index=False)
    return tmp_path / "t.csv"


def test_every_format_gives_the_same_data(csv: Path, tmp_path: Path) -> None:
    FRAME.to_csv(tmp_path / "t.tsv", index=False, sep="\t")
    FRAME.to_parquet(tmp_path / "t.parquet")
    FRAME.to_csv(tmp_path / "indexed.csv")  # pandas writes the row numbers into a column without a name
    (tmp_path / "windows.csv").write_bytes(b"\xef\xbb\xbf" + csv.read_bytes().replace(b"\n", b"\r\n") + b"\r\n")
    blanks = FRAME.rename(columns={"age": " age", "zip": "zip ", "hospital": " hospital "})
    blanks.to_csv(tmp_path / "blanks.csv", index=False)
    blanks.to_parquet(tmp_path / "blanks.parquet")
    names = ("t.csv", "t.tsv", "t.parquet", "indexed.csv", "windows.csv", "blanks.csv", "blanks.parquet")
    loaded = [table(tmp_path / name).load() for name in names]
    assert len({examples.fingerprint for examples in loaded}) == 1
    examples = loaded[0]
    assert examples.columns == (
        Column("age"), Column("ward", ("north", "south")), Column("zip"), Column("smoker", ("false", "true")),
    )  # fmt: skip
    assert (examples.classes, examples.labels.tolist()) == (("healthy", "sick"), [1, 0] * 6)
    assert (examples.domain_names, examples.domains.tolist()) == (("A", "B", "C"), [0] * 4 + [1] * 4 + [2] * 4)
    assert isinstance(examples.inputs, torch.Tensor)
    assert torch.isnan(examples.inputs[1, 0])
    assert examples.inputs[4].tolist() == [72.5, 1, 101, 1]
    assert examples.scaling == "standardise"


def test_names_that_differ_only_in_blanks_are_refused(tmp_path: Path) -> None:
    FRAME.assign(**{" age": 1}).to_csv(tmp_path / "t.csv", index=False)
    FRAME.assign(**{" age": 1}).to_parquet(tmp_path / "t.parquet")
    for name in ("t.csv", "t.parquet"):
        with pytest.raises(MessiError, match=rf"{name} has several columns named 'age'; rename all but one"):
            table(tmp_path / name).load()


def test_names_of_columns_may_be_composed_or_decomposed(tmp_path: Path) -> None:
    forms = [unicodedata.normalize(form, "clé") for form in ("NFD", "NFC")]
    for header in forms:
        for option in forms:
            data = written(tmp_path, f"{header},domain,a\nx,d,1\ny,e,2\n")
            examples = dataclasses.replace(data, label_column=option, features=("a",)).load()
            assert examples.classes == ("x", "y")
    with pytest.raises(MessiError, match="several columns named 'clé'"):
        written(tmp_path, f"{forms[0]},{forms[1]},label,domain\n1,2,x,d\n").load()


def test_features_categories_and_parts_are_chosen_by_name(csv: Path) -> None:
    chosen = table(csv, features=("zip", "age"), categories=("zip",), split_column="smoker").load()
    assert chosen.columns == (Column("zip", ("101", "102", "103")), Column("age"))
    assert chosen.parts == ("true", "false") * 6
    assert table(csv, ignore=("id", "zip", "ward", "smoker")).load().columns == (Column("age"),)
    assert len(table(csv, ignore=(), categories=("id",)).load().columns[0].categories or ()) == 12


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"label_column": "y"}, r"no column in .*t.csv named 'y'; available: .* Name the column with --label\."),
        ({"domain_column": "y"}, r"named 'y'; .* Name the column with --domain\."),
        ({"features": ("agee",)}, r"no column in .* named 'agee'; .*Did you mean 'age'"),
        ({"ignore": ("x",)}, r"Name the column with --ignore\."),
        ({"categories": ("x",)}, r"Name the column with --categories\."),
        ({"ignore": ()}, r"Column 'id' of .*t.csv has 12 different texts, such as 'patient 0'"),
        ({"features": ("hospital",)}, r"The column 'hospital' of .* cannot be a feature and have another role"),
        ({"features": ("age",), "categories": ("zip",)}, r"The column 'zip' of .* has categories but is no feature"),
        ({"ignore": ("id", "age", "ward", "zip", "smoker")}, r"The table .* has no features"),
    ],
)
def test_a_wrong_option_gives_one_sentence(csv: Path, options: dict[str, object], sentence: str) -> None:
    with pytest.raises(MessiError, match=sentence):
        table(csv, **options).load()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("label,domain,a\nx,y,1\nx,,2\n", r"An empty cell in row 3 of .*t.csv, column 'domain'; fill it in"),
        ("label,domain,a\nx,y,1\nx,y\n", r"Row 3 of .* has 2 cells, but the header has 3"),
        ("label,domain,a\nx,y,1\n\n\nx,y,2\n", r"Row 3 of .*t.csv is blank; remove it\.$"),
        ("\nlabel,domain,a\nx,y,1\n", r"Row 1 of .*t.csv is blank; remove it\.$"),
        (
            "label;domain;a\nx;y;1,5\n",
            r"Row 2 of .*t.csv has 2 cells, but the header has 1. Separate the columns with ",
        ),
        ("label;domain;a\nx;y;1\n", r"Separate the columns with commas"),
        ('label,domain,a\nx,y,"1\n', r"The table .* cannot be read: unexpected end of data"),
        ("label,domain,a\n", r"has no rows; it must have one per example"),
        ("label,domain,a,a\nx,y,1,2\n", r"several columns named 'a'; rename all but one"),
        ("label,domain,a\nx,y," + "1" * 200_000 + "\n", r"cannot be read: field larger than field limit"),
        ("label,domain,a\nx,y,1\nx,y,2\nx,y,1;5\n", r"'1;5' in row 4 of .*t.csv, column 'a' is not a number"),
        ('label,domain,a\nx,y,1\nx,y,"2\n3"\nx,y,4\n', r"'2.3' in row 3 of .*t.csv, column 'a' is not a number"),
    ],
)
def test_a_damaged_table_gives_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(MessiError, match=f"(?s){sentence}"):
        written(tmp_path, text).load()


def test_vectors_next_to_a_table_are_its_features(csv: Path, tmp_path: Path) -> None:
    vectors = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32)
    np.save(tmp_path / "v.npy", vectors)
    alone = table(csv, vectors=str(tmp_path / "v.npy"), ignore=()).load()
    assert [column.name for column in alone.columns] == ["vectors[0]", "vectors[1]", "vectors[2]"]
    assert isinstance(alone.inputs, torch.Tensor)
    assert np.array_equal(alone.inputs.float().numpy(), vectors)
    both = table(csv, vectors=str(tmp_path / "v.npy"), features=("age",)).load()
    assert [column.name for column in both.columns] == ["age", "vectors[0]", "vectors[1]", "vectors[2]"]
    moved = table(csv, vectors=str((tmp_path / "v.npy").rename(tmp_path / "w.npy")), ignore=())
    assert moved.load().fingerprint == alone.fingerprint
    lists = FRAME.assign(vectors=vectors.tolist()).drop(columns=["age", "ward", "zip", "smoker"])
    lists.to_parquet(tmp_path / "lists.parquet")
    same = table(tmp_path / "lists.parquet").load()
    assert same.columns == alone.columns
    assert isinstance(same.inputs, torch.Tensor)
    assert torch.equal(same.inputs.float(), alone.inputs.float())


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (np.zeros((11, 3)), r"v.npy and .*t.csv must have one vector per row, .* but have 11 vectors and 12 rows"),
        (np.zeros((12, 3, 2)), r"v.npy must be features \[N, F\]"),
        (np.zeros((12, 5, 5), np.uint8), r"v.npy must have a vector of numbers per row, but has the shape"),
        (np.array([None] * 12), r"v.npy cannot be read: it must be an .npy file of a plain array"),
        (np.full((12, 2), np.inf), r"v.npy contains infinite values: 24 in 12 of 12 rows"),
        (b"\x93NUMPY\x01\x00", r"v.npy cannot be read"),
        (None, r"v.npy cannot be read: No such file"),
    ],
)
def test_vectors_that_do_not_fit_are_named(csv: Path, tmp_path: Path, content: object, sentence: str) -> None:
    if isinstance(content, bytes):
        (tmp_path / "v.npy").write_bytes(content)
    elif isinstance(content, np.ndarray):
        np.save(tmp_path / "v.npy", content, allow_pickle=True)
    with pytest.raises(MessiError, match=sentence):
        table(csv, vectors=str(tmp_path / "v.npy")).load()


def test_rows_are_recognised_whatever_the_order_of_columns_and_the_other_rows(csv: Path, tmp_path: Path) -> None:
    examples = table(csv).load()
    turned = FRAME.iloc[[7, 2, 4]][FRAME.columns[::-1]].assign(extra=1)
    turned.to_csv(tmp_path / "turned.csv", index=False)
    again = table(tmp_path / "turned.csv").load_like(examples.columns)
    assert torch.equal(example_digests(again), example_digests(examples)[[7, 2, 4]])
    assert len(set(example_digests(examples).tolist())) == 12
    changed = FRAME.iloc[[7, 2, 4]].assign(ward=["south", "north", "south"])
    changed.to_csv(tmp_path / "changed.csv", index=False)
    other = example_digests(table(tmp_path / "changed.csv").load_like(examples.columns))
    assert (other == example_digests(examples)[[7, 2, 4]]).tolist() == [True, False, True]


def test_the_fingerprint_changes_with_every_cell_that_matters_and_with_no_other(csv: Path, tmp_path: Path) -> None:
    first = table(csv).load().fingerprint
    for column, value in (("age", 99), ("ward", "west"), ("smoker", True), ("hospital", "B"), ("diagnosis", "sick")):
        changed = FRAME.copy()
        changed.loc[1, column] = value
        changed.to_csv(tmp_path / "other.csv", index=False)
        assert table(tmp_path / "other.csv").load().fingerprint != first, column
    FRAME.assign(id="x").to_csv(tmp_path / "other.csv", index=False)
    assert table(tmp_path / "other.csv").load().fingerprint == first


def test_a_table_larger_than_the_memory_is_refused_before_it_is_read(
    csv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FRAME.to_parquet(tmp_path / "t.parquet")
    monkeypatch.setattr(tables, "physical_memory", lambda: 1000)
    for path in (csv, tmp_path / "t.parquet"):
        with pytest.raises(MessiError, match=r"needs .* of memory, and this machine has 1e\+03 bytes|1 kB"):
            table(path).load()


def test_a_small_parquet_file_that_unpacks_to_a_lot_is_refused_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = pyarrow.array(["x" * 100_000]).dictionary_encode()
    column = pyarrow.DictionaryArray.from_arrays(pyarrow.array(np.zeros(20_000, np.int32)), one.dictionary)
    parquet.write_table(pyarrow.table({"label": column, "domain": column}), tmp_path / "bomb.parquet")
    assert (tmp_path / "bomb.parquet").stat().st_size < 1_000_000
    monkeypatch.setattr(tables, "physical_memory", lambda: 1_000_000_000)
    start = time.process_time()
    with pytest.raises(MessiError, match=r"bomb.parquet needs .* of memory|cannot be read"):
        FeatureTable(path=str(tmp_path / "bomb.parquet")).load()
    assert time.process_time() - start < 10


def test_damaged_files_raise_only_messi_errors(csv: Path, tmp_path: Path) -> None:
    FRAME.assign(vector=pandas.Series([[1.0, 2.0]] * 12)).to_parquet(tmp_path / "t.parquet")
    rng, refused = np.random.default_rng(0), 0
    for name, tries in (("t.parquet", 400), ("t.csv", 300)):
        whole = (tmp_path / name).read_bytes()
        damaged = tmp_path / f"damaged{Path(name).suffix}"
        for _ in range(tries):
            content = bytearray(whole)
            content[rng.integers(0, len(content))] = rng.integers(0, 256)
            damaged.write_bytes(content[: rng.integers(1, len(content))] if rng.random() < 0.2 else content)
            try:
                inputs = table(damaged).load().inputs
                assert isinstance(inputs, torch.Tensor)
                assert not inputs.isinf().any()
            except MessiError:
                refused += 1
    assert refused > 100


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_a_named_pipe_is_not_opened(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(MessiError, match="named pipe"):
        table(tmp_path / name).load()


def test_a_config_is_restored_with_its_tuples(csv: Path) -> None:
    config = table(csv, categories=("zip",))
    assert FeatureTable.from_dict(config.to_dict()) == config
    assert dataclasses.replace(config, ignore=()).fingerprint() != config.fingerprint()
