"""Building a network without initialising its parameters, because all of them will be loaded from a file.

A file may name a network of a billion parameters without containing its weights. Initialising it would take 40 s before
the missing weights are noticed; memory that is never written to costs nothing.
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
"""The operations that initialisations consist of."""


class _Undrawn(TorchFunctionMode):
    """Skips operations that would initialise a parameter."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = kwargs or {}
        # Functions of nn.init arrive here as a whole, with the tensor as a keyword.
        tensor = args[0] if args else given.get("tensor")
        drawn = func in _DRAWN or getattr(func, "__module__", "") == nn.init.__name__
        return tensor if drawn and isinstance(tensor, nn.Parameter) else func(*args, **given)


@contextmanager
def uninitialised() -> Iterator[None]:
    """Skip the initialisation of the parameters of networks built inside the block."""
    with _Undrawn():
        yield
