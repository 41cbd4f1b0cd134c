"""The list of a data set's image files, before any of them is opened."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from messi.core.errors import MessiError
from messi.core.text import first_few
from messi.data.image_files import SUFFIXES, is_picture


@dataclass(frozen=True, kw_only=True)
class Listing:
    """N image files, each with a class and a domain."""

    root: Path
    files: tuple[str, ...]
    """Relative to the root, or absolute."""
    labels: Tensor
    """[N] indices into ``classes``."""
    domains: Tensor
    """[N] indices into ``domain_names``."""
    classes: tuple[str, ...]
    domain_names: tuple[str, ...]
    parts: tuple[str, ...] = ()
    """The official part (train, val, test, ...) of each file, if the data defines parts."""
    ignored: tuple[str, ...] = ()
    """Files that are not used as images, because of their suffix or their place in the folder."""

    def __len__(self) -> int:
        return len(self.files)

    def only(self, keep: Sequence[int]) -> "Listing":
        """Return some of the files; classes and domains keep their indices."""
        chosen = torch.tensor(keep, dtype=torch.long)
        return Listing(
            root=self.root,
            files=tuple(self.files[i] for i in keep),
            labels=self.labels[chosen],
            domains=self.domains[chosen],
            classes=self.classes,
            domain_names=self.domain_names,
            parts=tuple(self.parts[i] for i in keep) if self.parts else (),
            ignored=self.ignored,
        )


def make_listing(
    root: Path,
    rows: Sequence[tuple[str, str, str]],
    *,
    parts: Sequence[str] = (),
    ignored: Sequence[str] = (),
    numbers_in_order: bool = False,
) -> Listing:
    """Build a listing from rows of file, domain and class, with sorted names; ``numbers_in_order`` puts 2 before 10."""
    files, domains, labels = zip(*rows, strict=True)
    key = by_number if numbers_in_order else str
    domain_names, classes = (sorted(set(names), key=key) for names in (domains, labels))
    domain_index = {name: index for index, name in enumerate(domain_names)}
    class_index = {name: index for index, name in enumerate(classes)}
    return Listing(
        root=root,
        files=tuple(files),
        labels=torch.tensor([class_index[label] for label in labels]),
        domains=torch.tensor([domain_index[domain] for domain in domains]),
        classes=tuple(classes),
        domain_names=tuple(domain_names),
        parts=tuple(parts),
        ignored=tuple(ignored),
    )


def list_folder(root: Path, *, domains: Sequence[str] = ()) -> Listing:
    """List ``root/domain/class/image``, sorted as in DomainBed; ``domains`` limits it to these folders."""
    if not root.is_dir():
        raise MessiError(f"There is no folder {root}; it must contain one folder per domain.")
    rows: list[tuple[str, str, str]] = []
    found, ignored = _look_into(root, "", "domain folders with class folders in them")
    for domain in domains or found:
        labels, others = _look_into(root, f"{domain}/", "class folders with images in them")
        ignored += others
        for label in labels:
            images, others = _images(root, f"{domain}/{label}/")
            ignored += others
            rows += [(file, domain, label) for file in images]
    return make_listing(root, rows, ignored=ignored)


def _look_into(root: Path, place: str, wanted: str) -> tuple[list[str], list[str]]:
    """Return the folders and the other files in a folder under the root."""
    parent = root / place
    if not parent.is_dir():
        raise MessiError(f"There is no folder {parent}; it must contain {wanted}.")
    names = visible(parent)
    folders = [name for name in names if (parent / name).is_dir()]
    if not folders:
        raise MessiError(f"The folder {parent} contains no folders; it must contain {wanted}.")
    return folders, [place + name for name in names if name not in folders]


def _images(root: Path, place: str) -> tuple[list[str], list[str]]:
    """Return the image files and the other files of a class folder."""
    names = visible(root / place)
    images = [place + name for name in names if is_picture(name)]
    if not images:
        raise _no_images(root / place, names)
    return images, [place + name for name in names if not is_picture(name)]


def _no_images(folder: Path, names: Sequence[str]) -> MessiError:
    folders = [name for name in names if (folder / name).is_dir()]
    if not folders:
        expected = f" The name of an image ends in {', '.join(SUFFIXES)}." if names else ""
        return MessiError(f"The class folder {folder} contains no images; add images or remove it.{expected}")
    return MessiError(
        f"The folder {folder} contains folders ({first_few(folders)}) where images are expected: the layout is "
        "domain/class/image. Move the class folders up by one level, or list the images in a table with the columns "
        "path, label, domain and, for parts such as train and test, split."
    )


def visible(parent: Path) -> list[str]:
    """Return the sorted names in a folder, without hidden ones such as those that macOS adds for every image."""
    try:
        names = [path.name for path in parent.iterdir()]
    except OSError as error:
        raise MessiError(f"The folder {parent} cannot be read: {error.strerror}. Make it readable.") from error
    return sorted(name for name in names if not name.startswith("."))


def by_number(name: str) -> tuple[int, str]:
    """Return a key that sorts names which are numbers as numbers, after all others."""
    return (int(name), name) if name.isdecimal() and name.isascii() else (-1, name)
