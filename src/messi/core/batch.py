"""What flows between the rooms: a batch, a task, a prediction and the named terms of a loss."""

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
    """[B] source-domain indices, 0 to K-1 (the target has none)."""
    step: int = 0
    """The training step that the batch belongs to; they count from 1."""

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
    """What a model says of B inputs."""

    logits: Tensor
    """[B, classes]"""
    routing: Tensor | None = None
    """[B, experts]; None when the method has no router."""


@dataclass(frozen=True)
class ExpertUse:
    """What the experts of a model did with B inputs."""

    place: Literal["head", "blocks"]
    """Where they are: after the encoder, or in blocks of it, the last of which is told of here."""
    routing: Tensor
    """[B, experts]"""
    outputs: Tensor
    """[experts, B, width] what every expert says, before it is weighted."""


@dataclass(frozen=True)
class Inspection:
    """What went on inside of a model on the way to its answer for B inputs."""

    logits: Tensor
    """[B, classes]"""
    encoded: Tensor | None = None
    """[B, D] what the encoder says; None when a method does not tell."""
    classified: Tensor | None = None
    """[B, R] what the classifier reads: the same, unless something lies between; None when a method does not tell."""
    experts: ExpertUse | None = None
    """None when the method has no router."""


@dataclass(frozen=True)
class InputSpec:
    """How an input must look when it enters an encoder; saved with every model."""

    shape: tuple[int, ...]
    """(channels, height, width) for images, (F,) for features."""
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    """Images are divided by 255, then normalised per channel by these; empty for features."""
