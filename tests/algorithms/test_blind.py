"""Reading a value is detected."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from .blind import Blind


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
def test_the_watch_sees_who_looks(look: Callable[[Tensor], Any]) -> None:
    with Blind(), pytest.raises(AssertionError, match="looks at a value"):
        look(torch.ones(3))
