"""Your own arrays in an ``.npz`` file: features or images, labels and domains."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import tyro
from torch import Tensor

from messi.core.errors import MessiError
from messi.data.augment import Augmentation
from messi.data.datasets.common.base import DataConfig
from messi.data.datasets.common.npz import read_npy, read_npz
from messi.data.examples import Examples, Scaling, digest, require_not_infinite
from messi.data.images import Images
from messi.data.progress import DataProgress


@dataclass(frozen=True, kw_only=True)
class Arrays(DataConfig):
    """Your own arrays in an .npz file: features [N, F] or uint8 images, with N labels and N domains."""

    backbone: ClassVar[str] = "residual_mlp"
    augmentation: ClassVar[Augmentation] = "none"
    earlier: ClassVar[Mapping[str, Any]] = {"scaling": "none"}

    path: tyro.conf.Fixed[str]
    """The .npz file."""
    inputs_array: str = "inputs"
    """The array with features [N, F], or with uint8 images [N, H, W], [N, H, W, C] or [N, C, H, W], C up to 3."""
    labels_array: str = "labels"
    """The array with the classes, as numbers or text."""
    domains_array: str = "domains"
    """The array with the domains, as numbers or text."""
    split_array: str = "split"
    """The array with train, val and test; required only for --split official."""
    scaling: Scaling = "standardise"
    """Standardise features with the mean and standard deviation of the training part, or use them as they are."""

    def load(self, progress: DataProgress | None = None) -> Examples:  # noqa: ARG002 (nothing to report)
        """Read the arrays."""
        required = (self.inputs_array, self.labels_array, self.domains_array)
        arrays = read_npz(Path(self.path), required, optional=[self.split_array])
        inputs = as_inputs(arrays[self.inputs_array], f"'{self.inputs_array}' in {self.path}")
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
            scaling=self.scaling,
        )

    def _names(self, array: str, values: Any, number: int) -> tuple[tuple[str, ...], Tensor]:
        """Return the sorted names and each example's index among them."""
        if values.shape != (number,) or np.issubdtype(values.dtype, np.floating):
            raise MessiError(
                f"'{array}' in {self.path} must contain {number} whole numbers or strings, one per input, "
                f"but has type {values.dtype} and shape {list(values.shape)}."
            )
        if values.dtype.kind == "S":
            values = np.char.decode(values, "utf-8", "replace")
        names, indices = np.unique(values, return_inverse=True)
        return tuple(str(name) for name in names), torch.from_numpy(indices)


def read_inputs(path: Path, name: str) -> Tensor:
    """Return the features or images in one array of an .npz file."""
    return as_inputs(read_npz(path, [name])[name], f"'{name}' in {path}")


def read_vectors(path: Path) -> Tensor:
    """Return the features in an .npy file."""
    vectors = as_inputs(read_npy(path), str(path))
    if vectors.dim() != 2:
        raise MessiError(f"{path} must have a vector of numbers per row, but has the shape {list(vectors.shape)}.")
    return vectors


def as_inputs(values: Any, what: str) -> Tensor:
    """Return an array as features [N, F] or images [N, C, H, W]; ``what`` names it in the error message."""
    if values.dtype == np.uint8 and values.ndim in (3, 4) and values.size:
        images = torch.from_numpy(values if values.ndim == 4 else values[..., None])
        if images.shape[-1] <= 3:
            images = images.permute(0, 3, 1, 2)
        if images.shape[1] <= 3:
            return images.contiguous()
    elif values.dtype.kind in "fiub" and values.ndim == 2 and values.size:
        with np.errstate(over="ignore"):  # too large a number becomes infinite, which is refused
            features = torch.from_numpy(values.astype(np.float32))
        require_not_infinite(features, what)
        return features
    raise MessiError(
        f"{what} must be features [N, F] or uint8 images of up to three channels, but has type {values.dtype} "
        f"and shape {list(values.shape)}."
    )
