"""Tables of image files, in the forms that occur in practice."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow
import pytest
import torch
from pyarrow import parquet

from messi.core.errors import MessiError
from messi.data.datasets.table import Table
from messi.data.examples import Examples
from messi.data.splits import official_split

from .copies import Notes, make_sorted, paint, painted

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


def test_numbers_are_sorted_as_numbers(tmp_path: Path) -> None:
    values = ["10", "2", "0", "33", "5"]
    for value in values:
        paint(tmp_path / f"{value}.png", 0, 0)
    table = write(tmp_path / "table.csv", [HEADER, *((f"{v}.png", v, f"1{v}") for v in values)])
    listing = Table(path=str(table)).listing(Notes())
    assert listing.classes == ("0", "2", "5", "10", "33")
    assert listing.domain_names == ("10", "12", "15", "110", "133")
    assert [listing.classes[label] for label in listing.labels.tolist()] == values


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
        pytest.param(
            "path,label,domain\n", r"has no rows; it must have one per example below its header", id="no rows"
        ),
        pytest.param("path,label,domain\n\n\n", r"The table .* has no rows", id="blank rows"),
        pytest.param("", r"The table .* is empty; it must have a header, such as label,domain,age", id="empty file"),
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


def test_upper_case_suffixes_are_read_like_lower_case_ones(tmp_path: Path, rows: list[Row]) -> None:
    check(Table(path=str(write(tmp_path / "TABLE.TSV", [HEADER, *rows], delimiter="\t"))).load())
    columns = dict(zip(HEADER, map(list, zip(*rows, strict=True)), strict=True))
    parquet.write_table(pyarrow.table(columns), tmp_path / "TABLE.PARQUET")
    check(Table(path=str(tmp_path / "TABLE.PARQUET")).load())


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
