"""Batch size, precision and mode for running a method."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from messi.algorithms.common.base import Algorithm
from messi.core.hardware import hardware_of
from messi.core.precision import Precision, StatedPrecision
from messi.models.encoder import EncoderConfig


def batch_size(device: torch.device) -> int:
    """Return the batch size for prediction: large enough to fill a GPU, small enough for the caches of a CPU."""
    return 512 if device.type == "cuda" else 64


def choose_precision(encoder: EncoderConfig, device: torch.device, stated: StatedPrecision | None = None) -> Precision:
    """Return the stated precision; by default that of the device, but on a CPU only for encoders that it makes faster.

    A frozen encoder encodes images in it, and leaves only small products to train, in float32.
    """
    if stated:
        return Precision.stated(stated)
    precision = hardware_of(device).precision
    if device.type != "cpu" or (encoder.gains_from_bfloat16 and encoder.tuning.kind != "head"):
        return precision
    return Precision(training="float32", prediction=precision.prediction if encoder.gains_from_bfloat16 else "float32")


def autocast(algorithm: Algorithm, device: torch.device, *, training: bool = False) -> torch.autocast:
    """Return the precision in which a method predicts or trains; by default that of the device."""
    precision = algorithm.precision or hardware_of(device).precision
    return low_precision(device, precision.training if training else precision.prediction)


def low_precision(device: torch.device, name: str) -> torch.autocast:
    """Return a context for forward passes in a precision; in float32 it does nothing."""
    return torch.autocast(device.type, dtype=getattr(torch, name), enabled=name != "float32")


@contextmanager
def evaluating(algorithm: Algorithm) -> Iterator[None]:
    """Disable dropout and batch statistics inside the block."""
    was_training = algorithm.training
    algorithm.eval()
    try:
        yield
    finally:
        algorithm.train(was_training)
