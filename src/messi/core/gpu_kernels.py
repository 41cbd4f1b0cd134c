"""The one switch between GPU kernels and the torch code that computes the same on any device.

The kernels are written in Triton, which only CUDA builds of torch install.
"""

import functools
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

_enabled = True


def run_on(tensor: Tensor) -> bool:
    """Return whether kernels process this tensor."""
    return tensor.is_cuda and _enabled and _has_triton()


def run_under_autocast(tensor: Tensor) -> bool:
    """Return whether kernels process this tensor and autocast sets the precision, as in training and prediction."""
    return run_on(tensor) and torch.is_autocast_enabled("cuda")


@contextmanager
def disabled() -> Iterator[None]:
    """Use torch and timm only inside the block, to compare kernels with them."""
    global _enabled  # noqa: PLW0603
    before, _enabled = _enabled, False
    try:
        yield
    finally:
        _enabled = before


def implementation(device: torch.device, *, otherwise: str) -> str:
    """Return which code runs on a device: the kernels, or ``otherwise`` and the reason why the kernels cannot run."""
    if device.type != "cuda":
        return f"{otherwise} (no GPU)"
    return "fused GPU kernels" if _has_triton() else f"{otherwise} (Triton is not installed)"


@functools.cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None
