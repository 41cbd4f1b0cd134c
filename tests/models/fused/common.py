"""What the tests of all kernels share; without a GPU, Triton's interpreter runs the kernels."""

import torch
from torch import Tensor

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ROUNDING = 1e-5
"""Relative; a few hundred roundings of float32."""


def rand(*shape: int, seed: int = 0) -> Tensor:
    """Return standard normal numbers, the same on every device."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def relative_error(actual: Tensor, expected: Tensor) -> float:
    """Return the norm of the difference, relative to that of what is expected."""
    actual, expected = actual.detach().double(), expected.detach().double()
    return float((actual - expected).norm() / expected.norm())
