"""Batch size, precision and mode for running a method."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from messi.algorithms.common.base import Algorithm
from messi.core.hardware import hardware_of


def batch_size(device: torch.device) -> int:
    """Return the batch size for prediction: large enough to fill a GPU, small enough for the caches of a CPU."""
    return 512 if device.type == "cuda" else 64


def autocast(device: torch.device, *, training: bool = False) -> torch.autocast:
    """Return the precision of prediction or of training: bfloat16 on most GPUs, float32 on a CPU."""
    hardware = hardware_of(device)
    dtype = hardware.training_dtype if training else hardware.prediction_dtype
    return torch.autocast(device.type, dtype=dtype, enabled=dtype != torch.float32)


@contextmanager
def evaluating(algorithm: Algorithm) -> Iterator[None]:
    """Disable dropout and batch statistics inside the block."""
    was_training = algorithm.training
    algorithm.eval()
    try:
        yield
    finally:
        algorithm.train(was_training)
