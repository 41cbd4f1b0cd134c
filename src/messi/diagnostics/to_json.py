"""Results as JSON has them."""

import math
from typing import Any

from torch import Tensor

DIGITS = 4
"""Significant digits of a number."""


def plain(value: Any) -> Any:
    """Return dicts, lists, tensors and numbers with rounded numbers; null for what is not finite."""
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
    """Return a table [..., M] as lists, with one null for each cell whose M numbers are NaN."""
    if table.dim() == 1:
        return None if table.isnan().any() else table.tolist()
    return [cells(part) for part in table]
