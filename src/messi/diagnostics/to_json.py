"""Results as plain JSON values."""

import math
from typing import Any

from torch import Tensor

DIGITS = 4
"""Significant digits of every number."""


def plain(value: Any) -> Any:
    """Return dicts, lists, tensors and numbers as plain values: numbers rounded, None if not finite."""
    if isinstance(value, Tensor):
        return plain(value.tolist())
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    return value


def cells(table: Tensor) -> list[Any] | None:
    """Return a table [..., M] as lists, with None for each cell whose M numbers are NaN."""
    if table.dim() == 1:
        return None if table.isnan().any() else table.tolist()
    return [cells(part) for part in table]
