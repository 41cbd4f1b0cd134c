"""All examples of a data set: an input, a label and a domain each."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from messi.core.errors import MessiError, unknown_name
from messi.data.images import Images


@dataclass(frozen=True)
class Examples:
    """N examples. Domains are only metadata; who trains on which is decided later by a split."""

    inputs: Images | Tensor
    """N images, or float features [N, F]."""
    labels: Tensor
    """[N] indices into ``classes``."""
    domains: Tensor
    """[N] indices into ``domain_names``."""
    classes: tuple[str, ...]
    domain_names: tuple[str, ...]
    fingerprint: str
    """Changes when any input, label or domain does."""
    parts: tuple[str, ...] = ()
    """The official part (train, val, test, ...) of each example, where the data has one."""
    file_digests: Tensor | None = None
    """[N] 64 bits of the digest of each image's file, where the images are files."""

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of the first input; of images only the number of channels is common to all."""
        return tuple(self.inputs[0].shape)


def digest(*tensors: Tensor) -> str:
    """Return the fingerprint of examples that are made and not read: of their inputs, labels and domains."""
    result = hashlib.sha256()
    for tensor in tensors:
        result.update(tensor.numpy().tobytes())
    return result.hexdigest()


def require_finite(features: Tensor, what: str) -> None:
    """Raise if features [N, F] have values that are infinite or not a number, and say where."""
    bad = (~features.isfinite()).nonzero()
    if len(bad):
        row, column = bad[0].tolist()
        raise MessiError(
            f"{what} has values that are infinite or not a number: {len(bad):,} in {len(bad[:, 0].unique()):,} of "
            f"{len(features):,} rows, the first in row {row}, column {column}, counted from 0. Replace or remove them."
        )


def domain_indices(examples: Examples, names: Sequence[str]) -> list[int]:
    """Return the indices of domains by name."""
    for name in names:
        if name not in examples.domain_names:
            raise unknown_name("domain", name, examples.domain_names)
    if len(set(names)) < len(names):
        raise MessiError(f"A domain is named twice: {', '.join(names)}.")
    return [examples.domain_names.index(name) for name in names]
