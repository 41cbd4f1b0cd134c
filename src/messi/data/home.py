"""Where messi keeps what it downloads and decodes: ``$MESSI_HOME``, or ``~/.cache/messi``."""

import os
from pathlib import Path


def data_home() -> Path:
    """Return the folder in which data sets are looked for by name, and into which they are downloaded."""
    return _home() / "data"


def store_home() -> Path:
    """Return the folder of the decoded stores; any of them may be deleted and is made again."""
    return _home() / "stores"


def _home() -> Path:
    return Path(os.environ.get("MESSI_HOME") or "~/.cache/messi").expanduser()
