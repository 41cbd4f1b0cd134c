"""The examples of a data set: an input, a label and a domain each."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from messi.core.batch import Column, InputSpec
from messi.core.errors import MessiError, unknown_name
from messi.core.text import as_spelled
from messi.data.images import Images

Scaling = Literal["standardise", "none"]
"""Standardise features with the mean and standard deviation of the training part, or use them as they are."""


@dataclass(frozen=True)
class Examples:
    """N examples. Domains are only metadata: a split decides later which of them are trained on."""

    inputs: Images | Tensor
    """N images, or raw features [N, C]: floats, of which NaN is a missing value."""
    labels: Tensor
    """[N] indices into ``classes``."""
    domains: Tensor
    """[N] indices into ``domain_names``."""
    classes: tuple[str, ...]
    domain_names: tuple[str, ...]
    fingerprint: str
    """Changes when any input, label or domain does."""
    parts: tuple[str, ...] = ()
    """The official part (train, val, test, ...) of each example, if the data defines parts."""
    file_digests: Tensor | None = None
    """[N] 64 bits of the digest of each image file; None for data that is not made of image files."""
    columns: tuple[Column, ...] = ()
    """The C raw columns of features; a category is stored as its index. If empty, all are numbers without a name."""
    scaling: Scaling = "none"
    """How features are scaled in training."""

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of the first input; images share only the number of channels."""
        return tuple(self.inputs[0].shape)


def are_unbalanced(examples: Examples) -> bool:
    """Return whether, in some domain, the most frequent class has over twice as many examples as the others on average.

    Classes that do not occur in a domain do not count there. The rule is about whole domains, so that all runs on the
    same data report the same scores, whatever they hold out.
    """
    classes, domains = len(examples.classes), len(examples.domain_names)
    cells = torch.bincount(examples.domains * classes + examples.labels, minlength=domains * classes)
    counts = cells.view(domains, classes)
    largest, others = counts.amax(1), (counts > 0).sum(1) - 1
    return bool((largest * others > 2 * (counts.sum(1) - largest)).logical_and(others > 0).any())


def digest(*tensors: Tensor) -> str:
    """Return the fingerprint of generated examples: a digest of their inputs, labels and domains."""
    result = hashlib.sha256()
    for tensor in tensors:
        result.update(tensor.numpy().tobytes())
    return result.hexdigest()


def require_finite(features: Tensor, what: str) -> None:
    """Raise if features [N, F] contain infinite values or NaN, and report the first position."""
    _refuse(~features.isfinite(), f"{what} contains infinite values or NaN")


def require_not_infinite(features: Tensor, what: str) -> None:
    """Raise if features [N, F] contain infinite values, or are in float32, and report the first position.

    NaN is a missing value.
    """
    _refuse(features.isinf(), f"{what} contains infinite values")
    if features.dtype == torch.float64:
        largest = torch.finfo(torch.float32).max
        _refuse((features > largest) | (features < -largest), f"{what} contains numbers that are too large for float32")


def _refuse(bad: Tensor, problem: str) -> None:
    if len(places := bad.nonzero()):
        row, column = places[0].tolist()
        raise MessiError(
            f"{problem}: {len(places):,} in {len(places[:, 0].unique()):,} of {len(bad):,} rows, the first in row "
            f"{row}, column {column}, counted from 0. Replace or remove them."
        )


def domain_indices(examples: Examples, names: Sequence[str]) -> list[int]:
    """Return the indices of domains by name."""
    names = [as_spelled(name, examples.domain_names) for name in names]
    for name in names:
        if name not in examples.domain_names:
            raise unknown_name("domain", name, examples.domain_names)
    if len(set(names)) < len(names):
        raise MessiError(f"A domain is named twice: {', '.join(names)}.")
    return [examples.domain_names.index(name) for name in names]


def summary(examples: Examples, spec: InputSpec | None = None) -> str:
    """Return one line: numbers of examples, domains and classes, input sizes, and the size images are resized to."""
    numbers = f"{len(examples):,} examples, {len(examples.domain_names)} domains, {len(examples.classes)} classes"
    inputs = examples.inputs
    if not isinstance(inputs, Images):
        return f"{numbers}, {inputs.shape[1]} features"
    smallest, largest = inputs.sizes.amin(0).tolist(), inputs.sizes.amax(0).tolist()
    sizes = _size(largest) if smallest == largest else f"{_size(smallest)} to {_size(largest)}"
    if spec is None or smallest == largest == list(spec.shape[1:]):
        return f"{numbers}, images {sizes}"
    return f"{numbers}, images {sizes}, resized to {_size(spec.shape[1:])}"


def _size(shape: list[int] | tuple[int, ...]) -> str:
    height, width = shape
    return f"{width} x {height}"
