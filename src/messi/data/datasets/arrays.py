"""Your own arrays in an ``.npz`` file: features or images, labels and domains."""

import json
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import tyro
from torch import Tensor

from messi.core.errors import MessiError, unknown_name
from messi.data.datasets._base import Augmentation, DataConfig
from messi.data.examples import Examples, digest
from messi.data.images import Images
from messi.data.watcher import Watcher

_DAMAGE = (EOFError, OSError, RuntimeError, TypeError, ValueError, zipfile.BadZipFile, zlib.error)


@dataclass(frozen=True, kw_only=True)
class Arrays(DataConfig):
    """Your own arrays in an .npz file: float features [N, F] or uint8 images, with N labels and N domains."""

    backbone: ClassVar[str] = "mlp"
    augmentation: ClassVar[Augmentation] = "none"

    path: tyro.conf.Fixed[str]
    """The .npz file."""
    inputs_array: str = "inputs"
    """The array with features [N, F], or with uint8 images [N, H, W], [N, H, W, C] or [N, C, H, W], C up to 3."""
    labels_array: str = "labels"
    """The array with the classes, as numbers or text."""
    domains_array: str = "domains"
    """The array with the domains, as numbers or text."""
    split_array: str = "split"
    """The array with train, val and test for --split official; it may be missing otherwise."""

    def load(self, watcher: Watcher | None = None) -> Examples:  # noqa: ARG002 (nothing to tell)
        """Read the arrays."""
        arrays = _read(Path(self.path))
        for name in (self.inputs_array, self.labels_array, self.domains_array):
            if name not in arrays:
                raise unknown_name(f"array in {self.path}", name, arrays)
        inputs = self._inputs(arrays[self.inputs_array])
        classes, labels = self._names(self.labels_array, arrays[self.labels_array], len(inputs))
        domain_names, domains = self._names(self.domains_array, arrays[self.domains_array], len(inputs))
        parts: tuple[str, ...] = ()
        if self.split_array in arrays:
            names, indices = self._names(self.split_array, arrays[self.split_array], len(inputs))
            parts = tuple(names[index] for index in indices.tolist())
        named = torch.frombuffer(bytearray(json.dumps([classes, domain_names, parts]).encode()), dtype=torch.uint8)
        return Examples(
            inputs=Images.pack(inputs) if inputs.dim() == 4 else inputs,
            labels=labels,
            domains=domains,
            classes=classes,
            domain_names=domain_names,
            fingerprint=digest(inputs, labels, domains, named),
            parts=parts,
        )

    def _inputs(self, values: Any) -> Tensor:
        """Return features [N, F] or images [N, C, H, W]."""
        if values.dtype == np.uint8 and values.ndim in (3, 4) and values.size:
            images = torch.from_numpy(values if values.ndim == 4 else values[..., None])
            if images.shape[-1] <= 3:
                images = images.permute(0, 3, 1, 2)
            if images.shape[1] <= 3:
                return images.contiguous()
        elif np.issubdtype(values.dtype, np.floating) and values.ndim == 2 and values.size:
            features = torch.from_numpy(values.astype(np.float32))
            if not features.isfinite().all():
                raise MessiError(f"'{self.inputs_array}' in {self.path} has values that are infinite or not a number.")
            return features
        raise MessiError(
            f"'{self.inputs_array}' in {self.path} must be float features [N, F] or uint8 images of up to three "
            f"channels, but is {values.dtype} of the shape {list(values.shape)}."
        )

    def _names(self, array: str, values: Any, number: int) -> tuple[tuple[str, ...], Tensor]:
        """Return the sorted names and each example's index among them."""
        if values.shape != (number,) or np.issubdtype(values.dtype, np.floating):
            raise MessiError(
                f"'{array}' in {self.path} must hold {number} whole numbers or texts, one for every input, "
                f"but is {values.dtype} of the shape {list(values.shape)}."
            )
        if values.dtype.kind == "S":
            values = np.char.decode(values, "utf-8", "replace")
        names, indices = np.unique(values, return_inverse=True)
        return tuple(str(name) for name in names), torch.from_numpy(indices)


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except _DAMAGE as error:
        raise MessiError(f"{path} cannot be read: it must be an .npz file of plain arrays, without objects.") from error
