"""iWildCam, WILDS version 2.0."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch

from messi.core.config import Bounds
from messi.data.datasets.common.benchmark import Benchmark
from messi.data.datasets.wilds import METADATA, list_wilds
from messi.data.listing import Listing
from messi.data.watcher import Watcher


@dataclass(frozen=True, kw_only=True)
class IWildCam(Benchmark):
    """iWildCam (WILDS v2.0): animals before 323 camera traps, with five official parts."""

    cameras: Annotated[int, Bounds(minimum=1)] | None = None
    """Take only the first cameras of train, of val and of test, to try something out; by default all."""

    def listing(self, watcher: Watcher) -> Listing:
        """Return the image files."""
        listing = super().listing(watcher)
        return listing if self.cameras is None else _first_cameras(listing, self.cameras)

    def is_root(self, folder: Path) -> bool:
        """Tell whether a folder holds the table and the images."""
        return (folder / METADATA).is_file() and (folder / "train").is_dir()

    def layout(self) -> str:
        """Say what :meth:`is_root` looks for."""
        return "it must have metadata.csv and the folder train with all images"

    def list_files(self, root: Path) -> Listing:
        """Return the image files of all five parts."""
        return list_wilds(root)


def _first_cameras(listing: Listing, number: int) -> Listing:
    """Return the images of the first cameras of train, val and test; those of id_val and id_test are train's."""
    chosen: set[int] = set()
    for part in ("train", "val", "test"):
        members = torch.tensor([name == part for name in listing.parts])
        chosen.update(listing.domains[members].unique().tolist()[:number])
    return listing.only([index for index, camera in enumerate(listing.domains.tolist()) if camera in chosen])
