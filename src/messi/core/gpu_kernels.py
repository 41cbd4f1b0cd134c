"""The one switch between GPU kernels and the torch code that computes the same on any device.

The kernels are written in Triton, which only CUDA builds of torch install.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from messi.core.hardware import hardware_of

# A product and a sum round once. From Triton 3.10 on they round twice by default, which is slower and changes results.
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")

_enabled = True


def available(device: torch.device) -> bool:
    """Return whether kernels run on a device."""
    return _enabled and not hardware_of(device).why_no_kernels


def run_on(tensor: Tensor) -> bool:
    """Return whether kernels process this tensor."""
    return tensor.is_cuda and available(tensor.device)


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
    reason = hardware_of(device).why_no_kernels
    return f"{otherwise} ({reason})" if reason else "fused GPU kernels"
