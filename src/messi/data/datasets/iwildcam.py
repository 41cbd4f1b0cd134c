"""iWildCam, WILDS version 2.0."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch

from messi.core.config import Bounds
from messi.data.datasets.common.benchmark import Benchmark
from messi.data.datasets.wilds import METADATA, list_wilds
from messi.data.listing import Listing
from messi.data.progress import DataProgress


@dataclass(frozen=True, kw_only=True)
class IWildCam(Benchmark):
    """iWildCam (WILDS v2.0): animals at 323 camera traps, with five official parts."""

    cameras: Annotated[int, Bounds(minimum=1)] | None = None
    """Use only the first cameras of train, val and test, for a quick trial; by default all."""

    def listing(self, progress: DataProgress) -> Listing:
        """Return the image files."""
        listing = super().listing(progress)
        return listing if self.cameras is None else _first_cameras(listing, self.cameras)

    def is_root(self, folder: Path) -> bool:
        """Return whether a folder contains the table and the images."""
        return (folder / METADATA).is_file() and (folder / "train").is_dir()

    def layout(self) -> str:
        """Describe what :meth:`is_root` looks for."""
        return "it must contain metadata.csv and the folder train with all images"

    def list_files(self, root: Path) -> Listing:
        """Return the image files of all five parts."""
        return list_wilds(root)


def _first_cameras(listing: Listing, number: int) -> Listing:
    """Return the images of the first cameras of train, val and test; id_val and id_test share the cameras of train."""
    chosen: set[int] = set()
    for part in ("train", "val", "test"):
        members = torch.tensor([name == part for name in listing.parts])
        chosen.update(listing.domains[members].unique().tolist()[:number])
    return listing.only([index for index, camera in enumerate(listing.domains.tolist()) if camera in chosen])
