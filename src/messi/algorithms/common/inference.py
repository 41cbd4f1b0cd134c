"""Batch size, precision and mode for running a method."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from messi.algorithms.common.base import Algorithm


def batch_size(device: torch.device) -> int:
    """Return the batch size for prediction: large enough to fill a GPU, small enough for the caches of a CPU."""
    return 512 if device.type == "cuda" else 64


def autocast(device: torch.device) -> torch.autocast:
    """Return the precision of training and prediction: bfloat16 on a GPU, float32 on a CPU."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda")


@contextmanager
def evaluating(algorithm: Algorithm) -> Iterator[None]:
    """Disable dropout and batch statistics inside the block."""
    was_training = algorithm.training
    algorithm.eval()
    try:
        yield
    finally:
        algorithm.train(was_training)
