"""TerraIncognita, sorted into folders or as published with the Caltech Camera Traps."""

import json
from dataclasses import dataclass
from pathlib import Path

from messi.core.errors import MessiError
from messi.data.datasets.common.benchmark import Benchmark
from messi.data.listing import Listing, make_listing

_PICTURES = "eccv_18_all_images_sm"


@dataclass(frozen=True, kw_only=True)
class TerraIncognita(Benchmark):
    """TerraIncognita: 10 kinds of animals at four camera traps; its size depends on the annotation files."""

    def is_root(self, folder: Path) -> bool:
        """Return whether a folder contains the four locations, or the published images and annotations."""
        return super().is_root(folder) or all(any(folder.glob(f"**/{name}")) for name in (_PICTURES, "*.json"))

    def layout(self) -> str:
        """Describe what :meth:`is_root` looks for."""
        return f"{super().layout()}, or the published {_PICTURES} and its annotation files (.json)"

    def list_files(self, root: Path) -> Listing:
        """Return the image files; an image with several annotations is listed once per class."""
        if super().is_root(root):
            return super().list_files(root)
        pictures = next(root.glob(f"**/{_PICTURES}")).relative_to(root)
        manifest = self.manifest
        wanted = {domain.removeprefix("location_"): domain for domain in manifest.domains}
        places: dict[str, tuple[str, str]] = {}
        labels: list[tuple[str, str]] = []
        for file in _annotations(root):
            some_places, some_labels = _read(file)
            places |= some_places
            labels += some_labels
        rows = set()
        for image, label in labels:
            name, location = places.get(image, ("", ""))
            if location in wanted and label in manifest.classes:
                rows.add((f"{pictures.as_posix()}/{Path(name).name}", wanted[location], label))
        if not rows:
            raise MessiError(f"The annotation files in {root} name no image of the locations {', '.join(wanted)}.")
        return make_listing(root, sorted(rows, key=lambda row: (row[1], row[2], row[0])))


def _annotations(folder: Path) -> list[Path]:
    return sorted(folder.glob("**/*.json"))


def _read(file: Path) -> tuple[dict[str, tuple[str, str]], list[tuple[str, str]]]:
    """Return file name and location of every image by its id, and the id and class of every annotation."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        names = {category["id"]: category["name"] for category in content["categories"]}
        places = {image["id"]: (image["file_name"], str(image["location"])) for image in content["images"]}
        labels = [(entry["image_id"], names[entry["category_id"]]) for entry in content["annotations"]]
    except (ValueError, KeyError, TypeError) as error:
        raise MessiError(f"{file} is not an annotation file of the Caltech Camera Traps: {error!r}.") from error
    return places, labels
