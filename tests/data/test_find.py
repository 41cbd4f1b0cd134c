"""The data that ``--data`` names: a data set, or a path of any kind."""

from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from messi.core.errors import MessiError
from messi.data.datasets.arrays import Arrays
from messi.data.datasets.common.base import DATASETS
from messi.data.datasets.feature_table import FeatureTable
from messi.data.datasets.folder import Folder
from messi.data.datasets.table import Table
from messi.data.datasets.wilds import Wilds
from messi.data.find import BY_PATH, find_data
from tests.data.datasets.copies import make_camelyon, make_iwildcam, make_sorted, write_csv

DOMAINS, CLASSES = ("d0", "d1"), ("c0", "c1", "c2")

HEADER = ("path", "label", "domain")


def test_every_kind_of_path_finds_its_data(tmp_path: Path) -> None:
    make_sorted(tmp_path / "folder", DOMAINS, CLASSES, images=1)
    make_iwildcam(tmp_path / "cam")
    make_camelyon(tmp_path / "camelyon")
    write_csv(tmp_path / "t.csv", HEADER, [])
    for name in ("a.npz", "A.NPZ"):
        (tmp_path / name).touch()
    for name in ("T.CSV", "t.tsv"):
        (tmp_path / name).write_text("path\tlabel\n" if name == "t.tsv" else "path,label\n")
    parquet.write_table(pyarrow.table({"file": ["a/1.JPG"], "label": ["x"]}), tmp_path / "t.parquet")
    assert find_data(str(tmp_path / "folder")) == Folder(path=str(tmp_path / "folder"))
    for name in ("cam", "camelyon"):
        assert find_data(str(tmp_path / name)) == Wilds(path=str(tmp_path / name))
    for name in ("t.csv", "t.tsv", "t.parquet", "T.CSV"):
        assert find_data(str(tmp_path / name)) == Table(path=str(tmp_path / name))
    for name, header in (("f.csv", "label,domain,age\na,b,1\n"), ("g.csv", "label,domain,age\n")):
        (tmp_path / name).write_text(header)
        assert find_data(str(tmp_path / name)) == FeatureTable(path=str(tmp_path / name))
    for name in ("a.npz", "A.NPZ"):
        assert find_data(str(tmp_path / name)) == Arrays(path=str(tmp_path / name))
    assert find_data("folder") == Folder(path="folder"), "the name of a kind of data is not a data set"


def test_every_data_set_that_needs_no_path_is_found_by_its_name() -> None:
    names = [name for name in DATASETS.names() if name not in BY_PATH]
    assert len(names) == len(DATASETS.names()) - 5
    for name in names:
        assert find_data(name) == DATASETS.config(name)()


def test_the_error_for_a_path_without_data_lists_what_data_can_be(tmp_path: Path) -> None:
    with pytest.raises(MessiError, match=r"no folder, file or data set 'nowhere'; the data sets are: colored_"):
        find_data("nowhere")
    (tmp_path / "empty.csv").touch()
    with pytest.raises(MessiError, match=r"The table .*empty.csv is empty; it must have a header"):
        find_data(str(tmp_path / "empty.csv"))
    (tmp_path / "notes.txt").touch()
    with pytest.raises(
        MessiError, match=r"notes.txt is not a kind of data that messi reads; name a folder .*\.csv.*\.npz"
    ):
        find_data(str(tmp_path / "notes.txt"))
