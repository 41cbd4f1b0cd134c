"""iWildCam, WILDS version 2.0."""

from dataclasses import dataclass
from pathlib import Path

from messi.data.datasets._benchmark import Benchmark
from messi.data.datasets.wilds import METADATA, list_wilds
from messi.data.listing import Listing


@dataclass(frozen=True, kw_only=True)
class Iwildcam(Benchmark):
    """iWildCam (WILDS v2.0): animals before 323 camera traps, with five official parts."""

    def is_root(self, folder: Path) -> bool:
        """Tell whether a folder holds the table and the images."""
        return (folder / METADATA).is_file() and (folder / "train").is_dir()

    def layout(self) -> str:
        """Say what :meth:`is_root` looks for."""
        return "it must have metadata.csv and the folder train with all images"

    def list_files(self, root: Path) -> Listing:
        """Return the image files of all five parts."""
        return list_wilds(root)
