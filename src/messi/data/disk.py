"""Where messi keeps data on disk (``$MESSI_HOME``, or ``~/.cache/messi``), and whether there is enough space."""

import os
import shutil
from pathlib import Path

from messi.core.errors import MessiError
from messi.core.text import bytes_text


def data_home() -> Path:
    """Return the folder where named data sets are looked up, and into which they are downloaded."""
    return _home() / "data"


def store_home() -> Path:
    """Return the folder of the decoded stores; a deleted store is built again."""
    return _home() / "stores"


def feature_home() -> Path:
    """Return the folder of encoded images; deleted features are computed again."""
    return _home() / "features"


def received_home() -> Path:
    """Return the folder of data that another machine has sent; deleted data is sent again."""
    return _home() / "received"


def _home() -> Path:
    return Path(os.environ.get("MESSI_HOME") or "~/.cache/messi").expanduser()


def require_space(folder: Path, needed: int, what: str, *, hint: str = "or choose another folder") -> None:
    """Raise if the disk has too little space for some work, before the work begins."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise MessiError(
            f"{what} requires {bytes_text(needed)}, but the disk of {folder} has {bytes_text(free)} free; "
            f"free some space {hint}."
        )
