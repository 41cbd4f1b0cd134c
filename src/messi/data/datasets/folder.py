"""Your own images in ``domain/class/image`` folders."""

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
import tyro

from messi.core.errors import MessiError
from messi.data.datasets._base import Augmentation, DataConfig
from messi.data.examples import Examples
from messi.data.pictures import SUFFIXES, read_picture_and_digest


@dataclass(frozen=True, kw_only=True)
class Folder(DataConfig):
    """Your own images in folders domain/class/image; a class may be missing in some domains."""

    backbone: ClassVar[str] = "deit_tiny_patch16_224"
    augmentation: ClassVar[Augmentation] = "domainbed"

    path: tyro.conf.Fixed[str]  # on the command line --data says it, and no second option may contradict that
    """The folder that holds one folder per domain."""

    def load(self) -> Examples:
        """Decode every image once; a file that cannot be decoded is an error that names it."""
        root = Path(self.path)
        files = list_images(root)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            pictures, digests = zip(*pool.map(read_picture_and_digest, files), strict=True)
        names = [file.relative_to(root).parts[:2] for file in files]
        domains = sorted({domain for domain, _ in names})
        classes = sorted({label for _, label in names})
        digest = hashlib.sha256()
        for file, content in zip(files, digests, strict=True):
            digest.update(file.relative_to(root).as_posix().encode() + b"\0" + content)
        return Examples(
            inputs=pictures,
            labels=torch.tensor([classes.index(label) for _, label in names]),
            domains=torch.tensor([domains.index(domain) for domain, _ in names]),
            classes=tuple(classes),
            domain_names=tuple(domains),
            fingerprint=digest.hexdigest(),
        )


def list_images(root: Path) -> list[Path]:
    """Return the image files of all classes of all domains, sorted; a folder without any is an error."""
    if not root.is_dir():
        raise MessiError(f"There is no folder {root}; it must hold one folder per domain.")
    files: list[Path] = []
    for domain in _folders(root, "domain folders with class folders in them"):
        for label in _folders(domain, "class folders with images in them"):
            images = sorted(file for file in label.iterdir() if file.suffix.lower() in SUFFIXES)
            if not images:
                raise MessiError(f"The class folder {label} has no images; put images into it or remove it.")
            files += images
    return files


def _folders(parent: Path, wanted: str) -> list[Path]:
    found = sorted(child for child in parent.iterdir() if child.is_dir() and not child.name.startswith("."))
    if not found:
        raise MessiError(f"The folder {parent} is empty; it must hold {wanted}.")
    return found
