"""Your own images in ``domain/class/image`` folders."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from messi.data.datasets.common.base import ImageData
from messi.data.listing import Listing, list_folder
from messi.data.progress import DataProgress


@dataclass(frozen=True, kw_only=True)
class Folder(ImageData):
    """Your own images in folders domain/class/image; a class may be missing in some domains."""

    path: tyro.conf.Fixed[str]  # on the command line --data sets it, and no second option may contradict it
    """The folder that contains one folder per domain."""

    def listing(self, progress: DataProgress) -> Listing:  # noqa: ARG002 (nothing to report)
        """Return the image files."""
        return list_folder(Path(self.path))
