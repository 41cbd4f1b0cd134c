"""From a name or a path, such as that of ``--data``, to the data set that it means."""

from pathlib import Path

from messi.core.errors import MessiError
from messi.data.datasets.arrays import Arrays
from messi.data.datasets.common.base import DATASETS, DataConfig
from messi.data.datasets.common.tables import SUFFIXES, read_header
from messi.data.datasets.feature_table import FeatureTable
from messi.data.datasets.folder import Folder
from messi.data.datasets.table import Table
from messi.data.datasets.wilds import METADATA, Wilds
from messi.data.image_files import is_picture

BY_PATH = ("arrays", "feature_table", "folder", "table", "wilds")


def find_data(name: str) -> DataConfig:
    """Return the data set of that name, or the data at that path."""
    names = [known for known in DATASETS.names() if known not in BY_PATH]
    path = Path(name)
    if name in names:
        config: DataConfig = DATASETS.config(name)()
        return config
    if not path.exists():
        raise MessiError(f"There is no folder, file or data set '{name}'; the data sets are: {', '.join(names)}.")
    if path.is_dir():
        return Wilds(path=name) if (path / METADATA).is_file() else Folder(path=name)
    if path.suffix.lower() in SUFFIXES:
        return Table(path=name) if _lists_images(path) else FeatureTable(path=name)
    if path.suffix.lower() == ".npz":
        return Arrays(path=name)
    raise MessiError(
        f"{name} is not a kind of data that messi reads; name a folder domain/class/image, a table "
        f"({', '.join(SUFFIXES)}), or arrays (.npz)."
    )


def _lists_images(table: Path) -> bool:
    """Return whether a table has a column ``path``, or one whose first cell is the name of an image file."""
    header, first = read_header(table)
    return "path" in header or any(map(is_picture, first))


def data_label(data: DataConfig) -> str:
    """Return a short name for progress lines and output files: that of the folder or file, or of the data set."""
    if data.name not in BY_PATH:
        return data.name
    path = Path(data.to_dict()["path"]).resolve()
    return path.stem if path.is_file() else path.name
