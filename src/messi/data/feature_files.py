"""The features of encoded images on disk: computed once, then read by every run with the same data and encoder.

They are in a folder of ``$MESSI_HOME/features`` whose name contains the checksum of everything that determines them.
A file holds the features of a few hundred images in all views. It is written atomically and contains its own checksum
and this description. Resuming after an interruption and repairing a damaged file are therefore one case: encode what
cannot be read.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from messi.core.batch import InputSpec
from messi.core.checksum import values_checksum
from messi.core.documents import parse_document
from messi.core.errors import MessiError, writing
from messi.core.lock import locked
from messi.core.run_documents import Count
from messi.core.tensorfile import read_tensors, write_tensors
from messi.data.disk import feature_home, require_space

PART = 512
"""Images per file."""
_FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """Everything that determines the features of a data set."""

    data: str
    """The fingerprint of the data."""
    backbone: str
    weights: str
    """The checksum of the encoder's weights."""
    spec: InputSpec
    augmentation: str
    """Of all views but the first."""
    views: Count
    precision: str
    images: Count
    width: Count
    format: Count = _FORMAT


@dataclass(frozen=True, kw_only=True)
class _PartDescription:
    encoding: Encoding
    part: Count


class FeatureFiles:
    """The files with the features [views, images, width] of one encoding."""

    def __init__(self, encoding: Encoding) -> None:
        self.encoding = encoding
        self.folder = feature_home() / f"{encoding.backbone}-{values_checksum(asdict(encoding))[:16]}"
        self.parts = range(-(-encoding.images // PART))

    def rows(self, part: int) -> range:
        """Return the images of a file."""
        return range(part * PART, min((part + 1) * PART, self.encoding.images))

    def missing(self) -> list[int]:
        """Return the files that do not exist or are damaged."""
        return [part for part in self.parts if self._read(part) is None]

    def read(self) -> Tensor | None:
        """Return all features, or None if some are missing."""
        encoding = self.encoding
        features = torch.empty(encoding.views, encoding.images, encoding.width)
        for part in self.parts:
            content = self._read(part)
            if content is None:
                return None
            rows = self.rows(part)
            features[:, rows.start : rows.stop] = content
        return features

    def write(self, part: int, features: Tensor) -> None:
        """Write the features [views, n, width] of the images of a file."""
        description = _PartDescription(encoding=self.encoding, part=part)
        write_tensors(self._path(part), {"features": features}, asdict(description))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Let one process at a time encode; others wait."""
        with writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        with locked(self.folder, self.folder / "lock", wait=True):
            yield

    def require_space(self, parts: int) -> None:
        """Raise if the disk has too little space for so many files."""
        size = parts * PART * self.encoding.views * self.encoding.width * torch.float32.itemsize
        require_space(self.folder, size, "Encoding the images", hint="or set MESSI_HOME to a folder on another disk")

    def _path(self, part: int) -> Path:
        return self.folder / f"{part:06d}.safetensors"

    def _read(self, part: int) -> Tensor | None:
        """Return the features in a file; None if there is none, or if it must be written again."""
        path = self._path(part)
        if not path.exists():
            return None
        try:
            tensors, values = read_tensors(path)
            description = parse_document(_PartDescription, values)
            features = tensors.get("features")
            shape = (self.encoding.views, len(self.rows(part)), self.encoding.width)
            if description != _PartDescription(encoding=self.encoding, part=part):
                raise MessiError("It has the features of other images.")
            if features is None or features.shape != shape or features.dtype != torch.float32:
                raise MessiError(f"It must contain float32 features of the shape {list(shape)}.")
        except MessiError as error:
            logging.getLogger("messi").warning("%s is encoded again: %s", path, str(error).partition(" Restore")[0])
            return None
        return features
