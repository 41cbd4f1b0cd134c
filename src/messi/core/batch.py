"""The types that all packages share: a batch, a task, a prediction and the named terms of a loss."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

LossTerms = dict[str, Tensor]
"""Weighted scalar terms by name; their sum is the loss. They stay tensors until they are logged."""


@dataclass(frozen=True)
class Batch:
    """One training batch: B examples of the source domains."""

    inputs: Tensor
    """[B, C, H, W] normalised images, or [B, F] features."""
    labels: Tensor
    """[B] class indices."""
    domains: Tensor
    """[B] source-domain indices, 0 to K-1; the target domains have no index."""
    step: int = 0
    """The training step of the batch; steps count from 1."""

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Task:
    """What a model is built for."""

    input_shape: tuple[int, ...]
    """(channels, height, width) of an image, or (F,) for features."""
    num_classes: int
    num_domains: int
    """The number of source domains."""


@dataclass(frozen=True)
class Prediction:
    """The output of a model for B inputs."""

    logits: Tensor
    """[B, classes]"""
    routing: Tensor | None = None
    """[B, experts]; None if the method has no router."""


@dataclass(frozen=True)
class ExpertUse:
    """Routing and outputs of the experts for B inputs."""

    place: Literal["head", "blocks"]
    """Whether the experts are after the encoder or in its blocks; for blocks, this is the last block with experts."""
    routing: Tensor
    """[B, experts]"""
    outputs: Tensor
    """[experts, B, width] the output of every expert, before it is weighted."""


@dataclass(frozen=True)
class Inspection:
    """Intermediate results of a model for B inputs."""

    logits: Tensor
    """[B, classes]"""
    encoded: Tensor | None = None
    """[B, D] the output of the encoder; None if the method does not expose it."""
    classified: Tensor | None = None
    """[B, R] the input of the classifier, equal to ``encoded`` if nothing is in between; None if not exposed."""
    experts: ExpertUse | None = None
    """None if the method has no router."""


@dataclass(frozen=True)
class Column:
    """A raw column of numbers or categories, and how it becomes features."""

    name: str
    categories: tuple[str, ...] | None = None
    """One feature each, which is 1 in the rows of that category and otherwise 0; None for a column of numbers."""
    fill: float = 0.0
    """Replaces missing numbers. A missing category, like one that is not listed, is 0 in all features."""
    indicator: bool = False
    """Whether one more feature is 1 where the value is missing."""

    @property
    def width(self) -> int:
        """The number of features."""
        return (1 if self.categories is None else len(self.categories)) + self.indicator


@dataclass(frozen=True)
class InputSpec:
    """The shape and normalisation of an encoder's input; saved with every model."""

    shape: tuple[int, ...]
    """(channels, height, width) for images, (F,) for features."""
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    """Images are divided by 255, then normalised per channel by these. Features are normalised by theirs, which are
    empty if features are used as they are."""
    columns: tuple[Column, ...] = ()
    """The raw columns that features are made of; if empty, every feature is a number, and the mean replaces a missing
    one."""
