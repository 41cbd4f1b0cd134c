"""Building a network whose parameters all come from a file: nothing is drawn at random for them first.

A drawn parameter is a written one: a network of a billion parameters, which a file may name without holding its
weights, would take 40 s to be found out. Memory that nobody writes to costs nothing.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

_DRAWN = frozenset(
    {
        torch.Tensor.add_,
        torch.Tensor.clamp_,
        torch.Tensor.copy_,
        torch.Tensor.div_,
        torch.Tensor.erfinv_,
        torch.Tensor.fill_,
        torch.Tensor.mul_,
        torch.Tensor.normal_,
        torch.Tensor.uniform_,
        torch.Tensor.zero_,
    }
)
"""What initialisations are made of."""


class _Undrawn(TorchFunctionMode):
    """Leaves parameters as they are, and everything else alone."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = kwargs or {}
        # Functions of nn.init come here as a whole, with the tensor by its name.
        tensor = args[0] if args else given.get("tensor")
        drawn = func in _DRAWN or getattr(func, "__module__", "") == nn.init.__name__
        return tensor if drawn and isinstance(tensor, nn.Parameter) else func(*args, **given)


@contextmanager
def uninitialised() -> Iterator[None]:
    """Skip the initialisation of parameters of networks that are built inside the block."""
    with _Undrawn():
        yield
