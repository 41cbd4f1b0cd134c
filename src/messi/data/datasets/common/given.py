"""Data that a program had in memory, as it stands in the config of a model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np

from messi.core.config import Config
from messi.core.errors import MessiError
from messi.data.augment import Augmentation
from messi.data.datasets.arrays import Arrays
from messi.data.datasets.common.base import DataConfig
from messi.data.examples import Examples
from messi.data.progress import DataProgress

_Type = Literal[
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float32",
    "float64",
    "str",
    "object",
]


@dataclass(frozen=True, kw_only=True)
class Labels(Config):
    """Classes or domains as the user gave them, to be saved with a model, which has only their names."""

    values: tuple[Any, ...]
    type: _Type
    """Their numpy type."""

    @classmethod
    def of(cls, labels: Any) -> Self:
        """Return what can be saved: other than numbers, True and False, they become text."""
        if labels.dtype.name in get_args(_Type) and all(
            isinstance(v, bool | int | float | str) for v in labels.tolist()
        ):
            return cls(values=tuple(labels.tolist()), type=labels.dtype.name)
        return cls(values=tuple(map(str, labels)), type="str")

    @staticmethod
    def read(values: Any, names: Sequence[str]) -> Any:
        """Return the labels that :meth:`of` stored, if they are those with these names; without any, the names."""
        if values is None:
            return np.array(names)
        stored = Labels.from_dict(values)
        try:
            labels = np.array(stored.values, stored.type)
        except (ValueError, TypeError, OverflowError) as error:
            raise MessiError(f"The labels in the file are not of the type {stored.type}; save it again.") from error
        if [str(label) for label in labels] != list(names):
            raise MessiError("The labels in the file are not those of its model; save it again.")
        return labels


@dataclass(frozen=True, kw_only=True)
class GivenData(DataConfig):
    """The data of an estimator in the config of its model: only what its model file lacks."""

    backbone: ClassVar[str] = Arrays.backbone
    augmentation: ClassVar[Augmentation] = Arrays.augmentation

    classes: Labels
    domains: Labels

    def load(self, progress: DataProgress | None = None) -> Examples:  # noqa: ARG002 (nothing to report)
        """Refuse: the data was in memory."""
        raise MessiError(
            "This model was trained by DomainClassifier.fit, whose data was not saved; name it with --data."
        )
