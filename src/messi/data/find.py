"""From a name or a path, such as that of ``--data``, to the data set that it means."""

from pathlib import Path

from messi.core.errors import MessiError
from messi.data.datasets.arrays import Arrays
from messi.data.datasets.common.base import DATASETS, DataConfig
from messi.data.datasets.folder import Folder
from messi.data.datasets.table import SUFFIXES, Table
from messi.data.datasets.wilds import METADATA, Wilds

BY_PATH = ("arrays", "folder", "table", "wilds")


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
        return Table(path=name)
    if path.suffix.lower() == ".npz":
        return Arrays(path=name)
    raise MessiError(
        f"{name} is not a kind of data that messi reads; name a folder domain/class/image, a table "
        f"({', '.join(SUFFIXES)}), or arrays (.npz)."
    )


def data_label(data: DataConfig) -> str:
    """Return a short name for progress lines and output files: that of the folder or file, or of the data set."""
    if data.name not in BY_PATH:
        return data.name
    path = Path(data.to_dict()["path"]).resolve()
    return path.stem if path.is_file() else path.name
