"""The guard itself: it detects every way to read a value."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from .capturable import ForbidValueReads


@pytest.mark.parametrize(
    "look",
    [
        lambda x: x.sum().item(),
        lambda x: x[x > 0],
        lambda x: x.unique(),
        lambda x: x.nonzero(),
        lambda x: bool(x.any()),
    ],
)
def test_reading_a_value_raises_an_error(look: Callable[[Tensor], Any]) -> None:
    with ForbidValueReads(), pytest.raises(AssertionError, match="reads a value"):
        look(torch.ones(3))
