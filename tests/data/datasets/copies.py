"""Functions that write small copies of the data sets, each in its real layout.

The colour of every image encodes its domain, class and number, so that a test can check its label. Images are saved
without loss, whatever their suffix, because messi reads the format from the content.
"""

import io
import json
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from messi.data.datasets.arrays import Arrays
from messi.data.datasets.colored_mnist import ColoredMNIST
from messi.data.datasets.common.base import DATASETS, DataConfig
from messi.data.datasets.domain_net import DomainNet
from messi.data.datasets.feature_table import FeatureTable
from messi.data.datasets.folder import Folder
from messi.data.datasets.iwildcam import IWildCam
from messi.data.datasets.office_home import OfficeHome
from messi.data.datasets.pacs import PACS
from messi.data.datasets.rotated_colored_mnist import RotatedColoredMNIST
from messi.data.datasets.rotated_mnist import RotatedMNIST
from messi.data.datasets.table import Table
from messi.data.datasets.terra_incognita import TerraIncognita
from messi.data.datasets.two_subsets import TwoSubsets
from messi.data.datasets.vlcs import VLCS
from messi.data.datasets.wilds import Wilds
from messi.data.manifest import read_manifest

Make = Callable[[Path], DataConfig]

WILDCAM_HEADER = ("split", "filename", "y", "location_remapped", "sequence_remapped", "datetime")
WILDCAM_PARTS = {
    "train": (0, 3, 20, 100),
    "id_val": (0, 3, 20, 100),
    "id_test": (0, 3, 20, 100),
    "val": (7, 11),
    "test": (5, 300),
}
"""The locations of every official part; those of val and test are in no other part."""
CAMELYON_HEADER = ("", "patient", "node", "x_coord", "y_coord", "tumor", "slide", "center", "split")


def paint(file: Path, domain: int, label: int, number: int = 0) -> None:
    """Save an image whose colour is (domain, class mod 256, 16 * number + class div 256); sizes differ by number."""
    file.parent.mkdir(parents=True, exist_ok=True)
    color = (domain, label % 256, 16 * number + label // 256)
    Image.new("RGB", (4 + number % 3, 4 + number % 2), color).save(file, format="PNG")


def painted(pixel: Sequence[int]) -> tuple[int, int]:
    """Return the domain and the class that a colour encodes."""
    return pixel[0], pixel[1] + 256 * (pixel[2] % 16)


def make_sorted(root: Path, domains: Iterable[str], classes: Sequence[str], images: int = 2) -> None:
    """Write domain/class/image."""
    for d, domain in enumerate(domains):
        for c, label in enumerate(classes):
            for number in range(images):
                paint(root / domain / label / f"{domain}_{c:03}_{number:06}.jpg", d, c, number)


def make_benchmark(root: Path, name: str, images: int = 2) -> None:
    """Write the domains and classes that the manifest of a published data set names."""
    manifest = read_manifest(name)
    make_sorted(root, manifest.domains, manifest.classes, images)


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a table whose cells need no quotes."""
    lines = [",".join(map(str, row)) for row in (header, *rows)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def make_iwildcam(root: Path, classes: int = 5, images: int = 2) -> None:
    """Write metadata.csv with the five official parts, and all images in train/."""
    rows: list[tuple[object, ...]] = []
    locations = sorted({location for part in WILDCAM_PARTS.values() for location in part})
    for part, places in WILDCAM_PARTS.items():
        for place in places:
            for label in range(classes):
                for number in range(images):
                    name = f"{part}-{place}-{label}-{number}.jpg"
                    paint(root / "train" / name, locations.index(place), label, number)
                    rows.append((part, name, label, place, 1, "2013-06-05 05:44:19"))
    write_csv(root / "metadata.csv", WILDCAM_HEADER, rows)


def make_camelyon(root: Path, images: int = 2) -> None:
    """Write five hospitals; the column split is 0 or 1 for all of them, even for centers 1 and 2."""
    rows: list[tuple[object, ...]] = []
    for center in range(5):
        for tumor in range(2):
            for split in range(2):
                for number in range(images):
                    patient, x, y = f"{center * 20 + 4:03}", 100 * split + number, 7 + tumor
                    folder = root / "patches" / f"patient_{patient}_node_4"
                    paint(folder / f"patch_patient_{patient}_node_4_x_{x}_y_{y}.png", center, tumor, number)
                    rows.append((len(rows), patient, 4, x, y, tumor, 0, center, split))
    write_csv(root / "metadata.csv", CAMELYON_HEADER, rows)


def make_terra_as_published(root: Path, images: int = 2) -> None:
    """Write one folder of images, and annotations in two files, with locations and classes that are not used."""
    manifest = read_manifest("terra_incognita")
    locations = [*(name.removeprefix("location_") for name in manifest.domains), "7"]
    labels = [*manifest.classes, "car", "deer"]
    files: list[list[dict[str, object]]] = [[], []]
    for d, location in enumerate(locations):
        for c in range(len(labels)):
            for number in range(images):
                name = f"{location}-{c}-{number}.jpg"
                paint(root / "eccv_18_all_images_sm" / name, d, c, number)
                files[number % 2].append({"name": name, "location": location, "category": c})
    for number, chosen in enumerate(files):
        write_annotations(root / "eccv_18_annotation_files" / f"part_{number}.json", labels, chosen)


def write_annotations(path: Path, labels: Sequence[str], images: Iterable[dict[str, object]]) -> None:
    """Write a JSON file like those of the Caltech Camera Traps; location is a text in some and a number in others."""
    images = list(images)
    content = {
        "info": {"version": "1"},
        "categories": [{"id": 10 + c, "name": label} for c, label in enumerate(labels)],
        "images": [{"id": f"id-{i['name']}", "file_name": i["name"], "location": i["location"]} for i in images],
        "annotations": [
            {"id": f"a{n}", "image_id": f"id-{i['name']}", "category_id": 10 + int(str(i["category"]))}
            for n, i in enumerate(images)
        ],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


def make_digits(path: Path, number: int = 360) -> str:
    """Write digits of every class in an .npz file of the usual layout; a uniform grey encodes the number of each."""
    images = np.broadcast_to((1 + np.arange(number) % 255).astype(np.uint8)[:, None, None], (number, 28, 28))
    digits, train = np.arange(number) % 10, number * 6 // 7
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, x_train=images[:train], y_train=digits[:train], x_test=images[train:], y_test=digits[train:])
    return str(path)


def make_arrays(path: Path) -> str:
    """Write features of two classes in three domains."""
    rng = np.random.default_rng(0)
    labels, domains = np.tile(["ant", "bee"], 18), np.repeat(["x", "y", "z"], 12)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, inputs=rng.normal(size=(36, 4)), labels=labels, domains=domains)
    return str(path)


def make_feature_table(path: Path) -> str:
    """Write a table of two classes in three domains, with numbers, categories and missing values."""
    rng = np.random.default_rng(0)
    rows = [
        (f"{rng.normal():.3f}", "" if i % 5 == 0 else str(i), ("red", "NA", "blue")[i % 3], "xyz"[i // 12], "ab"[i % 2])
        for i in range(36)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_csv(path, ("size", "age", "colour", "site", "label"), rows)
    return str(path)


def make_table(root: Path) -> str:
    """Write a CSV table next to a folder of images."""
    make_sorted(root / "images", ("d0", "d1", "d2"), ("c0", "c1"))
    files = sorted((root / "images").rglob("*.jpg"))
    rows = [(file.relative_to(root).as_posix(), file.parts[-2], file.parts[-3]) for file in files]
    write_csv(root / "table.csv", ("path", "label", "domain"), rows)
    return str(root / "table.csv")


def zipped(folder: Path, inside: str = "") -> bytes:
    """Return a zip archive that contains a folder inside other folders."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for file in sorted(folder.rglob("*")):
            archive.write(file, Path(inside) / file.relative_to(folder))
    return content.getvalue()


def tarred(folder: Path, inside: str = ".") -> bytes:
    """Return a tar.gz archive of a folder."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        archive.add(folder, inside)
    return content.getvalue()


def _pacs(root: Path) -> DataConfig:
    make_benchmark(root, "pacs")
    return PACS(path=str(root))


def _pacs_in_kfold(root: Path) -> DataConfig:
    make_benchmark(root / "PACS" / "kfold", "pacs")
    return PACS(path=str(root))


def _vlcs(root: Path) -> DataConfig:
    make_benchmark(root, "vlcs")
    return VLCS(path=str(root))


def _office_home(root: Path) -> DataConfig:
    make_benchmark(root, "office_home", images=1)
    return OfficeHome(path=str(root))


def _domain_net(root: Path) -> DataConfig:
    make_benchmark(root, "domain_net", images=1)
    return DomainNet(path=str(root), duplicates="keep")


def _terra(root: Path) -> DataConfig:
    make_benchmark(root, "terra_incognita")
    return TerraIncognita(path=str(root))


def _terra_as_published(root: Path) -> DataConfig:
    make_terra_as_published(root)
    return TerraIncognita(path=str(root))


def _iwildcam(root: Path) -> DataConfig:
    make_iwildcam(root)
    return IWildCam(path=str(root))


def _wilds(root: Path) -> DataConfig:
    make_iwildcam(root)
    return Wilds(path=str(root))


def _camelyon(root: Path) -> DataConfig:
    make_camelyon(root)
    return Wilds(path=str(root))


def _folder(root: Path) -> DataConfig:
    make_sorted(root, ("a", "b", "c"), ("0", "1"))
    return Folder(path=str(root))


COPIES: dict[str, Make] = {
    "arrays": lambda root: Arrays(path=make_arrays(root / "arrays.npz")),
    "colored_mnist": lambda root: ColoredMNIST(digits=make_digits(root / "mnist.npz")),
    "domain_net": _domain_net,
    "feature_table": lambda root: FeatureTable(path=make_feature_table(root / "rows.csv"), domain_column="site"),
    "folder": _folder,
    "iwildcam": _iwildcam,
    "office_home": _office_home,
    "pacs": _pacs,
    "rotated_colored_mnist": lambda root: RotatedColoredMNIST(digits=make_digits(root / "mnist.npz")),
    "rotated_mnist": lambda root: RotatedMNIST(digits=make_digits(root / "mnist.npz")),
    "table": lambda root: Table(path=make_table(root)),
    "terra_incognita": _terra,
    "two_subsets": lambda _root: TwoSubsets(per_domain=20),
    "vlcs": _vlcs,
    "wilds": _wilds,
}
OTHER_FORMS: dict[str, Make] = {
    "pacs in kfold": _pacs_in_kfold,
    "terra_incognita as published": _terra_as_published,
    "wilds with camelyon17": _camelyon,
}
FORMS = [*DATASETS.names(), *OTHER_FORMS]
"""Every registered data set, and other layouts that some of them come in."""


def name_of(form: str) -> str:
    """Return the data set to which a form belongs."""
    return form.partition(" ")[0]


def maker_of(form: str) -> Make:
    """Return the function that writes a small copy."""
    makers = COPIES | OTHER_FORMS
    if form not in makers:
        raise AssertionError(
            f"The data set '{form}' has no maker of a small copy; write one in tests/data/datasets/copies.py, in its "
            "real layout, and add it to COPIES, so that the contract of all data sets is tested with it."
        )
    return makers[form]


class Notes:
    """Collects the notes that it receives."""

    def __init__(self) -> None:
        self.works: list[str] = []
        self.notes: list[str] = []

    def started(self, text: str, total: int | None) -> None:  # noqa: ARG002 (the protocol's)
        self.works.append(text)

    def advanced(self, number: int) -> None: ...

    def finished(self) -> None: ...

    def noted(self, text: str) -> None:
        self.notes.append(text)
