"""A WILDS folder: images and ``metadata.csv``, with the official parts."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from messi.core.errors import MessiError
from messi.data.datasets.common.base import ImageData
from messi.data.datasets.table import check_paths, read_table
from messi.data.listing import Listing, make_listing
from messi.data.progress import DataProgress

METADATA = "metadata.csv"
_CAMELYON_UNSEEN = {"1": "val", "2": "test"}
_CAMELYON_PARTS = {"0": "train", "1": "id_val"}


@dataclass(frozen=True, kw_only=True)
class Wilds(ImageData):
    """A WILDS folder with metadata.csv and official parts: iWildCam or Camelyon17."""

    path: tyro.conf.Fixed[str]
    """The folder that contains metadata.csv."""

    def listing(self, progress: DataProgress) -> Listing:  # noqa: ARG002 (nothing to report)
        """Return the image files."""
        return list_wilds(Path(self.path))


def list_wilds(root: Path) -> Listing:
    """List the images of a WILDS folder."""
    columns = read_table(root / METADATA)
    if {"split", "filename", "y", "location_remapped"} <= columns.keys():
        return _iwildcam(root, columns)
    if {"patient", "node", "x_coord", "y_coord", "tumor", "center", "split"} <= columns.keys():
        return _camelyon17(root, columns)
    raise MessiError(
        f"The columns of {root / METADATA} are neither iWildCam's nor Camelyon17's; give the table itself with --data "
        "and name its columns with options, or, for images in folders domain/class, move the table elsewhere. "
        f"The columns are: {', '.join(columns)}."
    )


def _iwildcam(root: Path, columns: dict[str, Sequence[str]]) -> Listing:
    files = [f"train/{name}" for name in columns["filename"]]
    check_paths(root / METADATA, root, files)
    rows = list(zip(files, columns["location_remapped"], columns["y"], strict=True))
    return make_listing(root, rows, parts=columns["split"], numbers_in_order=True)


def _camelyon17(root: Path, columns: dict[str, Sequence[str]]) -> Listing:
    names = zip(*(columns[name] for name in ("patient", "node", "x_coord", "y_coord")), strict=True)
    files = [
        f"patches/patient_{patient}_node_{node}/patch_patient_{patient}_node_{node}_x_{x}_y_{y}.png"
        for patient, node, x, y in names
    ]
    check_paths(root / METADATA, root, files)
    rows = list(zip(files, columns["center"], columns["tumor"], strict=True))
    # Two hospitals are held out completely, regardless of the column.
    parts = [
        _CAMELYON_UNSEEN.get(center, _CAMELYON_PARTS.get(part, part))
        for center, part in zip(columns["center"], columns["split"], strict=True)
    ]
    return make_listing(root, rows, parts=parts, numbers_in_order=True)
