"""What every data set offers."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

from messi.core.config import Config
from messi.core.registry import Registry
from messi.data.examples import Examples

DATASETS = Registry("data set", "messi.data.datasets")
Augmentation = Literal["domainbed", "none"]


@dataclass(frozen=True, kw_only=True)
class DataConfig(Config, ABC):
    """Base of the data sets: a config that can be loaded."""

    registry: ClassVar[Registry | None] = DATASETS
    backbone: ClassVar[str]
    """The encoder that suits the data when the user names none."""
    augmentation: ClassVar[Augmentation]
    """The augmentation that suits it."""

    @abstractmethod
    def load(self) -> Examples:
        """Return all examples."""
