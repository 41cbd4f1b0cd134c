"""How a method is asked outside of training, by whoever asks it."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from messi.algorithms.common.base import Algorithm


def batch_size(device: torch.device) -> int:
    """Return how many images to predict at once: enough to fill a GPU, few enough for a CPU's caches."""
    return 512 if device.type == "cuda" else 64


def autocast(device: torch.device) -> torch.autocast:
    """Return the precision that training and prediction run in: bfloat16 on a GPU, float32 on a CPU."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda")


@contextmanager
def evaluating(algorithm: Algorithm) -> Iterator[None]:
    """Switch dropout and batch statistics off inside the block."""
    was_training = algorithm.training
    algorithm.eval()
    try:
        yield
    finally:
        algorithm.train(was_training)
