"""A user's own data: tables, arrays, image folders and WILDS folders, in the forms that occur in practice."""

import dataclasses
import os
import struct
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow
import pytest
import torch
from pyarrow import parquet

from messi.cli.common.data_option import BY_PATH, find_data
from messi.core.errors import MessiError
from messi.data.datasets.arrays import Arrays, read_inputs
from messi.data.datasets.common.base import DATASETS
from messi.data.datasets.folder import Folder
from messi.data.datasets.table import Table
from messi.data.datasets.wilds import Wilds
from messi.data.examples import Examples
from messi.data.images import Images
from messi.data.splits import official_split

from .copies import Notes, make_camelyon, make_iwildcam, make_sorted, paint, painted, write_csv

DOMAINS, CLASSES = ("d0", "d1"), ("c0", "c1", "c2")
Row = tuple[str, str, str]


@pytest.fixture
def rows(tmp_path: Path) -> list[Row]:
    """Rows of path, label and domain for images next to the table."""
    make_sorted(tmp_path / "images", DOMAINS, CLASSES, images=1)
    files = sorted((tmp_path / "images").rglob("*.jpg"))
    return [(file.relative_to(tmp_path).as_posix(), file.parts[-2], file.parts[-3]) for file in files]


def write(path: Path, lines: Sequence[Sequence[str]], delimiter: str = ",", encoding: str = "utf-8") -> Path:
    path.write_text("".join(delimiter.join(line) + "\n" for line in lines), encoding=encoding)
    return path


def check(examples: Examples) -> None:
    """Check that every image of the two domains and three classes has its own label and domain."""
    assert (examples.domain_names, examples.classes) == (DOMAINS, CLASSES)
    seen = [painted(image[:, 0, 0].tolist()) for image in examples.inputs]
    assert seen == list(zip(examples.domains.tolist(), examples.labels.tolist(), strict=True))
    assert sorted(seen) == [(d, c) for d in range(2) for c in range(3)]


HEADER = ("path", "label", "domain")


def test_a_table_may_be_csv_tsv_or_parquet(tmp_path: Path, rows: list[Row]) -> None:
    columns = dict(zip(HEADER, map(list, zip(*rows, strict=True)), strict=True))
    parquet.write_table(pyarrow.table(columns), tmp_path / "table.parquet")
    tables = (
        write(tmp_path / "table.csv", [HEADER, *rows]),
        write(tmp_path / "table.tsv", [HEADER, *rows], delimiter="\t"),
        tmp_path / "table.parquet",
    )
    loaded = [Table(path=str(path)).load() for path in tables]
    for examples in loaded:
        check(examples)
    assert len({examples.fingerprint for examples in loaded}) == 1


def test_tables_written_by_spreadsheet_programs_are_read(tmp_path: Path, rows: list[Row]) -> None:
    """A byte order mark, Windows line ends, a blank line at the end, columns in another order."""
    lines = [("domain", "note", "path", "label"), *((d, "x", path, label) for path, label, d in rows)]
    content = "\ufeff" + "".join(",".join(line) + "\r\n" for line in lines) + "\r\n"
    (tmp_path / "table.csv").write_bytes(content.encode())
    check(Table(path=str(tmp_path / "table.csv")).load())


def test_columns_may_have_other_names(tmp_path: Path, rows: list[Row]) -> None:
    table = write(tmp_path / "table.csv", [("file", "animal", "camera"), *rows])
    check(Table(path=str(table), path_column="file", label_column="animal", domain_column="camera").load())


def test_paths_may_be_absolute_or_start_from_another_folder(tmp_path: Path, rows: list[Row]) -> None:
    (tmp_path / "tables").mkdir()
    absolute = write(tmp_path / "absolute.csv", [HEADER, *((str(tmp_path / p), c, d) for p, c, d in rows)])
    check(Table(path=str(absolute)).load())
    elsewhere = write(tmp_path / "tables" / "table.csv", [HEADER, *rows])
    check(Table(path=str(elsewhere), root=str(tmp_path)).load())
    with pytest.raises(MessiError, match=rf"The image {tmp_path}/tables/images/.* cannot be read: No such file"):
        Table(path=str(elsewhere)).load()


def test_paths_may_go_up_within_the_root_and_have_backslashes_and_links(tmp_path: Path, rows: list[Row]) -> None:
    """Only paths out of the root are refused; on Linux, a name may contain a backslash."""
    (tmp_path / "images" / "d0" / "c0").rename(tmp_path / "elsewhere")
    (tmp_path / "images" / "d0" / "c0").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "images" / "d1" / "c2").rename(tmp_path / "images" / "d1" / "c\\2")
    changed = [(path.replace("d1/c2", "d1/c\\2"), label, domain) for path, label, domain in rows]
    table = write(tmp_path / "table.csv", [HEADER, *((f"images/../{p}", c, d) for p, c, d in changed)])
    check(Table(path=str(table)).load())


def test_names_may_have_blanks_commas_quotes_and_any_script(tmp_path: Path) -> None:
    names = ["a b.png", "c,d.png", 'e"f.png', "größe 中.png", "line\nbreak.png"]
    for number, name in enumerate(names):
        paint(tmp_path / "bilder ü" / name, 0, number)
    quoted = ['"bilder ü/{}"'.format(name.replace('"', '""')) for name in names]
    table = write(tmp_path / "table.csv", [HEADER, *((name, f'"{i}, é"', "Köln") for i, name in enumerate(quoted))])
    examples = Table(path=str(table)).load()
    assert examples.classes == ("0, é", "1, é", "2, é", "3, é", "4, é")
    assert examples.domain_names == ("Köln",)
    assert [painted(image[:, 0, 0].tolist())[1] for image in examples.inputs] == [0, 1, 2, 3, 4]


def test_blanks_around_the_names_of_a_table_make_no_new_classes_or_domains(tmp_path: Path, rows: list[Row]) -> None:
    spaced = [(path, f"{label} " if i % 2 else f"  {label}", f"{d}\t") for i, (path, label, d) in enumerate(rows)]
    check(Table(path=str(write(tmp_path / "table.csv", [HEADER, *spaced]))).load())
    lines = [(*HEADER, "split"), *((*row, " test" if row[2] == "d1" else "train ") for row in rows)]
    assert set(Table(path=str(write(tmp_path / "parts.csv", lines))).load().parts) == {"train", "test"}


def test_nan_is_an_empty_cell_of_parquet(tmp_path: Path) -> None:
    table = pyarrow.table({"path": ["1.png", "2.png"], "label": [1.0, float("nan")], "domain": ["a", "b"]})
    parquet.write_table(table, tmp_path / "table.parquet")
    with pytest.raises(MessiError, match=r"Row 3 of .* has an empty cell; fill in path, domain, label\."):
        Table(path=str(tmp_path / "table.parquet")).listing(Notes())


def test_numbers_are_sorted_as_numbers_in_tables_and_arrays(tmp_path: Path) -> None:
    values = ["10", "2", "0", "33", "5"]
    for value in values:
        paint(tmp_path / f"{value}.png", 0, 0)
    table = write(tmp_path / "table.csv", [HEADER, *((f"{v}.png", v, f"1{v}") for v in values)])
    listing = Table(path=str(table)).listing(Notes())
    assert listing.classes == ("0", "2", "5", "10", "33")
    assert listing.domain_names == ("10", "12", "15", "110", "133")
    assert [listing.classes[label] for label in listing.labels.tolist()] == values
    numbers = np.array([int(value) for value in values])
    examples = save_arrays(tmp_path, inputs=np.zeros((5, 2)), labels=numbers, domains=numbers).load()
    assert examples.classes == examples.domain_names == ("0", "2", "5", "10", "33")


def test_parquet_columns_may_hold_numbers(tmp_path: Path) -> None:
    make_sorted(tmp_path, ("a",), ("0", "1"), images=1)
    table = pyarrow.table(
        {"path": ["a/0/a_000_000000.jpg", "a/1/a_001_000000.jpg"], "label": [10, 2], "domain": [1, 1]}
    )
    parquet.write_table(table, tmp_path / "table.parquet")
    listing = Table(path=str(tmp_path / "table.parquet")).listing(Notes())
    assert (listing.classes, listing.labels.tolist()) == (("2", "10"), [1, 0])


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        pytest.param(
            "path,label,place\na,b,c\n", r"no column in .* named 'domain'; available: label, path, place", id="c"
        ),
        pytest.param(
            "a.png,cat,day\nb.png,dog,day\n", r"no column in .* named 'path'; available: a.png, cat, day", id="h"
        ),
        pytest.param("path,label,domain\na,b\n", r"Row 2 of .* has 2 cells, but the header has 3", id="short row"),
        pytest.param("path,label,domain\na,b,c\na,b,c,d\n", r"Row 3 of .* has 4 cells, but the head", id="long row"),
        pytest.param("path,label,domain\na,b,c\na,,c\n", r"Row 3 of .* has an empty cell; fill in path, d", id="cell"),
        pytest.param("path,label,domain\na, ,c\n", r"Row 2 of .* has an empty cell; fill in path, d", id="blank cell"),
        pytest.param(
            "file,label,domain\na,b,c\n", r"named 'path'; .* Name the column with --path-column\.$", id="name"
        ),
        pytest.param("path;label;domain\na;b;c\n", r"Separate the columns with commas, or with tabs", id="semicolons"),
        pytest.param("path,label,domain,label\na,b,c,d\n", r"several columns named 'label'; rename", id="same names"),
        pytest.param("path,label,domain\n", r"has no rows; it must have one per image below its header", id="no rows"),
        pytest.param("path,label,domain\n\n\n", r"The table .* has no rows", id="blank rows"),
        pytest.param(
            "", r"The table .* is empty; it must have a header, such as path,label,domain, and", id="empty file"
        ),
        pytest.param("\n\n", r"The table .* has no rows", id="blank file"),
        pytest.param('path,label,domain\n"a,b,c\n', r"The table .* cannot be read", id="open quote"),
        pytest.param(
            "path,label,domain\na.png,b,c\n../../etc/x.png,b,c\n",
            r"Row 3 of .* has the path '../../etc/x.png', which leaves the folder .*; write .* given with --root, or",
            id="path that leaves the root",
        ),
        pytest.param("path,label,domain\na/../../x.png,b,c\n", r"Row 2 of .* which leaves the folder", id="hidden .."),
        pytest.param(
            "path,label,domain\nC:\\photos\\x.png,b,c\n",
            r"Row 2 of .* has the Windows path 'C:\\ph.*--root",
            id="drive",
        ),
        pytest.param("path,label,domain\nphotos\\x.png,b,c\n", r"write it with / instead of \\ and", id="backslash"),
        pytest.param("path,label,domain\nno.png,b,c\n", r"The image .*no.png cannot be read: No such file", id="file"),
    ],
)
def test_an_unusable_table_gives_one_sentence(tmp_path: Path, content: str, sentence: str) -> None:
    (tmp_path / "table.csv").write_text(content)
    with pytest.raises(MessiError, match=sentence) as raised:
        Table(path=str(tmp_path / "table.csv")).load()
    assert "\n" not in str(raised.value)


def test_a_table_in_another_encoding_or_format_is_named(tmp_path: Path, rows: list[Row]) -> None:
    write(tmp_path / "latin.csv", [HEADER, ("a.png", "größe", "c")], encoding="latin-1")
    write(tmp_path / "wide.csv", [HEADER, *rows], encoding="utf-16")
    write(tmp_path / "text.parquet", [HEADER, *rows])
    for name in ("latin.csv", "wide.csv", "text.parquet", "missing.parquet", "missing.csv"):
        with pytest.raises(MessiError, match=rf"The table {tmp_path / name} cannot be read"):
            Table(path=str(tmp_path / name)).load()


def test_an_image_in_two_rows_is_two_examples(tmp_path: Path, rows: list[Row]) -> None:
    table = write(tmp_path / "table.csv", [HEADER, *rows, rows[0]])
    examples = Table(path=str(table)).load()
    assert len(examples) == len(rows) + 1
    assert torch.equal(examples.inputs[0], examples.inputs[len(rows)])


def test_the_split_column_becomes_the_official_parts_and_changes_the_fingerprint(
    tmp_path: Path, rows: list[Row]
) -> None:
    parts = ["train", "val", "train", "test", "test", "test"]
    lines = [(*row, part) for row, part in zip(rows, parts, strict=True)]
    examples = Table(path=str(write(tmp_path / "table.csv", [(*HEADER, "split"), *lines]))).load()
    assert examples.parts == tuple(parts)
    split = official_split(examples)
    assert (list(split.train), list(split.source_val), list(split.target)) == ([0], [0], [1])
    renamed = write(tmp_path / "table.csv", [(*HEADER, "part"), *lines])
    assert Table(path=str(renamed)).load().parts == ()
    assert Table(path=str(renamed), split_column="part").load().fingerprint == examples.fingerprint
    moved = write(tmp_path / "table.csv", [(*HEADER, "split"), *lines[:-1], (*rows[-1], "val")])
    assert Table(path=str(moved)).load().fingerprint != examples.fingerprint


def test_the_same_images_with_other_labels_are_other_data(tmp_path: Path, rows: list[Row]) -> None:
    first = Table(path=str(write(tmp_path / "table.csv", [HEADER, *rows]))).load()
    again = Table(path=str(write(tmp_path / "other.csv", [HEADER, *((p, "x", d) for p, _, d in rows)]))).load()
    assert first.fingerprint != again.fingerprint


def save_arrays(folder: Path, **arrays: np.ndarray) -> Arrays:
    np.savez(folder / "arrays.npz", **arrays)  # type: ignore[arg-type]  # its stub allows no other names
    return Arrays(path=str(folder / "arrays.npz"))


LABELS, PLACES = np.array(["b", "a", "b", "c"]), np.array([3, 3, 20, 1])


@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
def test_features_are_read_in_any_precision_with_text_and_numbers_as_names(tmp_path: Path, kind: str) -> None:
    values = np.arange(12).reshape(4, 3).astype(kind)
    examples = save_arrays(tmp_path, inputs=values, labels=LABELS, domains=PLACES).load()
    assert isinstance(examples.inputs, torch.Tensor)
    assert examples.inputs.dtype == torch.float32
    assert examples.inputs.tolist() == values.tolist()
    assert (examples.classes, examples.labels.tolist()) == (("a", "b", "c"), [1, 0, 1, 2])
    assert (examples.domain_names, examples.domains.tolist()) == (("1", "3", "20"), [1, 1, 2, 0])
    assert examples.parts == ()


def test_images_may_have_their_channels_last_first_or_none(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (4, 5, 6, 3), np.uint8)
    forms = {
        "last": (pixels, pixels.transpose(0, 3, 1, 2)),
        "first": (pixels.transpose(0, 3, 1, 2), pixels.transpose(0, 3, 1, 2)),
        "grey": (pixels[..., 0], pixels[:, None, :, :, 0]),
        "grey with a channel": (pixels[..., :1], pixels[:, None, :, :, 0]),
        "two channels": (pixels[..., :2], pixels[..., :2].transpose(0, 3, 1, 2)),
    }
    for form, (given, expected) in forms.items():
        examples = save_arrays(tmp_path, inputs=given, labels=LABELS, domains=PLACES).load()
        assert isinstance(examples.inputs, Images)
        assert np.array_equal(examples.inputs.stack().numpy(), expected), form
        assert examples.input_shape == expected.shape[1:]


def test_arrays_may_have_other_names(tmp_path: Path) -> None:
    config = save_arrays(tmp_path, x=np.zeros((4, 2)), y=LABELS, z=PLACES, s=np.array(["train"] * 4))
    with pytest.raises(MessiError, match=r"no array in .*arrays.npz named 'inputs'; available: s, x, y, z"):
        config.load()
    named = dataclasses.replace(config, inputs_array="x", labels_array="y", domains_array="z", split_array="s")
    assert named.load().parts == ("train",) * 4


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"inputs": np.zeros((4, 2, 2))}, r"'inputs' in .* must be float features .* but has type float64 and shape"),
        (
            {"inputs": np.zeros((4, 5, 5, 3), np.float32)},
            r"uint8 .* but has type float32 and shape \[4, 5, 5, 3\]",
        ),
        ({"inputs": np.zeros((4, 8, 8, 4), np.uint8)}, r"up to three channels, but has type uint8 and shape"),
        ({"inputs": np.zeros((4, 8, 8, 0), np.uint8)}, r"'inputs' in .* uint8 and shape \[4, 8, 8, 0\]"),
        ({"inputs": np.zeros((4, 0, 8, 3), np.uint8)}, r"'inputs' in .* uint8 and shape \[4, 0, 8, 3\]"),
        ({"inputs": np.zeros((4, 2), np.int64)}, r"'inputs' in .* but has type int64"),
        (
            {"inputs": np.zeros((4, 2), np.uint8)},
            r"uint8 and shape \[4, 2\]\. Save features as floats, with .astype",
        ),
        ({"inputs": np.zeros((4, 0))}, r"'inputs' in .* but has type float64 and shape \[4, 0\]"),
        ({"inputs": np.zeros(())}, r"'inputs' in .* but has type float64 and shape \[\]"),
        ({"inputs": np.array([[1.0, np.nan]] * 4)}, r"'inputs' in .* infinite values or NaN"),
        ({"inputs": np.array([[1.0, -np.inf]] * 4)}, r"'inputs' in .* infinite values or NaN"),
        (
            {"inputs": np.array([[1, 2, 3], [4, 5, np.nan], [7, 8, 9], [np.inf, 1, np.nan]])},
            r": 3 in 2 of 4 rows, the first in row 1, column 2, counted from 0\. Replace or remove them\.$",
        ),
        ({"labels": np.array([0, 1])}, r"'labels' in .* must contain 4 whole numbers or strings, .* and shape \[2\]"),
        ({"labels": np.zeros((4, 1), int)}, r"'labels' in .* and shape \[4, 1\]"),
        ({"labels": np.array([0.0, 1.0, 0.5, np.nan])}, r"'labels' in .* but has type float64"),
        ({"domains": np.array([0, 1, 2, 3, 4])}, r"'domains' in .* must contain 4 whole numbers"),
        ({"domains": np.array(0)}, r"'domains' in .* and shape \[\]"),
        ({"split": np.array(["train", "val"])}, r"'split' in .* must contain 4 .* and shape \[2\]"),
        ({"split": np.array("train")}, r"'split' in .* and shape \[\]"),
        ({"labels": np.array([], int), "domains": np.array([], int), "inputs": np.zeros((0, 2))}, r"shape \[0, 2\]"),
    ],
)
def test_arrays_of_a_wrong_shape_or_kind_are_named(
    tmp_path: Path, changed: dict[str, np.ndarray], sentence: str
) -> None:
    arrays = {"inputs": np.zeros((4, 2)), "labels": LABELS, "domains": PLACES}
    with pytest.raises(MessiError, match=sentence) as raised:
        save_arrays(tmp_path, **(arrays | changed)).load()
    assert "\n" not in str(raised.value)


def test_text_in_bytes_is_the_text(tmp_path: Path) -> None:
    config = save_arrays(tmp_path, inputs=np.zeros((4, 2)), labels=LABELS.astype("S"), domains=PLACES)
    assert config.load().classes == ("a", "b", "c")


def test_object_arrays_and_other_files_are_refused(tmp_path: Path) -> None:
    objects = np.array([{"a": 1}, None, "x", 3], object)
    pickled = save_arrays(tmp_path, inputs=np.zeros((4, 2)), labels=objects, domains=PLACES)
    with pytest.raises(MessiError, match=r"must be an .npz file of plain arrays, without objects"):
        pickled.load()
    whole = Path(pickled.path).read_bytes()
    np.save(tmp_path / "one.npy", np.zeros(3))
    contents = {
        "empty": b"",
        "text": b"inputs, labels, domains",
        "cut": whole[: len(whole) // 2],
        "one array": (tmp_path / "one.npy").read_bytes(),
    }
    for name, content in contents.items():
        (tmp_path / "bad.npz").write_bytes(content)
        with pytest.raises(MessiError, match=r"bad.npz cannot be read: it must be an .npz file of plain arrays"):
            Arrays(path=str(tmp_path / "bad.npz")).load()
        assert name
    with pytest.raises(MessiError, match=r"missing.npz cannot be read"):
        Arrays(path=str(tmp_path / "missing.npz")).load()


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_damaged_byte_is_reported_or_changes_nothing(tmp_path: Path, save: Callable[..., None]) -> None:
    """Some bytes, such as the dates of archive entries, have no meaning for messi; all other damage is reported."""
    path, damaged = tmp_path / "whole.npz", tmp_path / "damaged.npz"
    save(path, inputs=np.random.default_rng(0).normal(size=(4, 5)), labels=LABELS, domains=PLACES)
    whole, before = path.read_bytes(), Arrays(path=str(path)).load().fingerprint
    refused = 0
    for place in range(len(whole)):
        content = bytearray(whole)
        content[place] ^= 0xFF
        damaged.write_bytes(content)
        try:
            assert Arrays(path=str(damaged)).load().fingerprint == before
        except MessiError:
            refused += 1
    assert refused > len(whole) / 2


def test_the_fingerprint_of_arrays_changes_with_everything_that_a_run_depends_on(tmp_path: Path) -> None:
    arrays = {
        "inputs": np.arange(8.0).reshape(4, 2),
        "labels": LABELS,
        "domains": PLACES,
        "split": np.array(["train", "train", "val", "test"]),
    }
    changes = {
        "inputs": np.arange(8.0).reshape(4, 2)[::-1],
        "labels": np.array(["b", "a", "b", "d"]),
        "domains": np.array([3, 3, 21, 1]),
        "split": np.array(["train", "train", "test", "val"]),
    }
    first = save_arrays(tmp_path, **arrays).load().fingerprint
    assert save_arrays(tmp_path, **arrays).load().fingerprint == first
    others = {save_arrays(tmp_path, **(arrays | {name: value})).load().fingerprint for name, value in changes.items()}
    assert len(others | {first}) == 5


def test_every_kind_of_path_finds_its_data(tmp_path: Path) -> None:
    make_sorted(tmp_path / "folder", DOMAINS, CLASSES, images=1)
    make_iwildcam(tmp_path / "cam")
    make_camelyon(tmp_path / "camelyon")
    write_csv(tmp_path / "t.csv", HEADER, [])
    for name in ("t.tsv", "t.parquet", "a.npz", "T.CSV", "A.NPZ"):
        (tmp_path / name).touch()
    assert find_data(str(tmp_path / "folder")) == Folder(path=str(tmp_path / "folder"))
    for name in ("cam", "camelyon"):
        assert find_data(str(tmp_path / name)) == Wilds(path=str(tmp_path / name))
    for name in ("t.csv", "t.tsv", "t.parquet", "T.CSV"):
        assert find_data(str(tmp_path / name)) == Table(path=str(tmp_path / name))
    for name in ("a.npz", "A.NPZ"):
        assert find_data(str(tmp_path / name)) == Arrays(path=str(tmp_path / name))
    assert find_data("folder") == Folder(path="folder"), "the name of a kind of data is not a data set"


def test_every_data_set_that_needs_no_path_is_found_by_its_name() -> None:
    names = [name for name in DATASETS.names() if name not in BY_PATH]
    assert len(names) == len(DATASETS.names()) - 4
    for name in names:
        assert find_data(name) == DATASETS.config(name)()


def test_the_error_for_a_path_without_data_lists_what_data_can_be(tmp_path: Path) -> None:
    with pytest.raises(MessiError, match=r"no folder, file or data set 'nowhere'; the data sets are: colored_"):
        find_data("nowhere")
    (tmp_path / "notes.txt").touch()
    with pytest.raises(
        MessiError, match=r"notes.txt is not a kind of data that messi reads; name a folder .*\.csv.*\.npz"
    ):
        find_data(str(tmp_path / "notes.txt"))


def test_upper_case_suffixes_are_read_like_lower_case_ones(tmp_path: Path, rows: list[Row]) -> None:
    check(Table(path=str(write(tmp_path / "TABLE.TSV", [HEADER, *rows], delimiter="\t"))).load())
    columns = dict(zip(HEADER, map(list, zip(*rows, strict=True)), strict=True))
    parquet.write_table(pyarrow.table(columns), tmp_path / "TABLE.PARQUET")
    check(Table(path=str(tmp_path / "TABLE.PARQUET")).load())


def npz(path: Path, name: str, header: bytes, values: bytes, *, claimed: int | None = None) -> str:
    """Write an archive of one array with any header and any stated size."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{name}.npy", header + values)
    if claimed is not None:
        content = path.read_bytes()
        size = struct.pack("<I", len(header + values))
        assert content.count(size) >= 2
        path.write_bytes(content.replace(size, struct.pack("<I", claimed)))
    return str(path)


def npy_header(shape: str, dtype: str = "<f4") -> bytes:
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (117 - len(text)) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


@pytest.mark.parametrize(
    ("shape", "claimed"),
    [
        ("(100000, 200000)", None),
        ("(100000, 200000)", 2**32 - 2),
        ("(-1, 8)", None),
        ("(3, 2)", None),
        ("(1, 2)", None),
        ("(99999999999999999999999, 99999999999999999999)", None),
    ],
)
def test_an_array_that_claims_more_than_its_file_contains_uses_no_memory(
    shape: str, claimed: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(np.lib.format, "read_array", lambda *_, **__: pytest.fail("It was read."))
    path = npz(tmp_path / "lie.npz", "inputs", npy_header(shape), bytes(16), claimed=claimed)
    with pytest.raises(MessiError, match=r"lie\.npz cannot be read: it must be an \.npz file of plain arrays"):
        read_inputs(Path(path), "inputs")


def test_an_array_that_is_larger_than_the_memory_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez_compressed(tmp_path / "bomb.npz", inputs=np.zeros((1000, 1000), np.float32))
    assert (tmp_path / "bomb.npz").stat().st_size < 10_000
    monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": 1000, "SC_PAGE_SIZE": 4096}.__getitem__)
    with pytest.raises(
        MessiError, match=r"bomb\.npz cannot be read: 'inputs\.npy' takes 4 MB, and this machine has 4\.1"
    ):
        read_inputs(tmp_path / "bomb.npz", "inputs")


def test_only_the_requested_arrays_are_read(tmp_path: Path) -> None:
    objects = np.array([{"a": 1}], object)
    examples = save_arrays(tmp_path, inputs=np.zeros((4, 2)), labels=LABELS, domains=PLACES, notes=objects).load()
    assert len(examples) == 4


def test_a_damaged_array_header_raises_only_messi_errors(tmp_path: Path) -> None:
    """numpy parses it as Python, so the damage looks like Python; the archive itself is valid."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(4, 5)).astype(np.float32).tobytes()
    refused = 0
    for _ in range(300):
        header = bytearray(npy_header("(4, 5)"))
        for place in rng.integers(0, len(header), 3):
            header[place] = rng.choice(list(b"(){}[]',:\"0189<>fO\n\\\0\xff"))
        try:
            read_inputs(Path(npz(tmp_path / "damaged.npz", "inputs", bytes(header), values)), "inputs")
        except MessiError:
            refused += 1
    assert refused > 200


def test_a_damaged_parquet_file_raises_only_messi_errors(tmp_path: Path, rows: list[Row]) -> None:
    columns = dict(zip(HEADER, map(list, zip(*rows, strict=True)), strict=True))
    parquet.write_table(pyarrow.table(columns), tmp_path / "table.parquet")
    whole, rng = (tmp_path / "table.parquet").read_bytes(), np.random.default_rng(0)
    refused = 0
    for _ in range(500):
        content = bytearray(whole)
        content[rng.integers(0, len(content))] = rng.integers(0, 256)
        (tmp_path / "damaged.parquet").write_bytes(content)
        try:
            Table(path=str(tmp_path / "damaged.parquet")).listing(Notes())
        except MessiError:
            refused += 1
    assert refused > 100
