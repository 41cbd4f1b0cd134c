"""A guard against what a CUDA graph cannot capture: waiting for the device, and shapes that depend on data."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from messi.core.batch import LossTerms
from messi.engine.stepper import total

VALUE_READS = {
    "_local_scalar_dense",
    "is_nonzero",
    "equal",
    "nonzero",
    "masked_select",
    "_unique2",
    "unique_dim",
    "bincount",
}


class ForbidValueReads(TorchDispatchMode):
    """Raises an error when the value of a tensor is read."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch has no types for it

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func.overloadpacket.__name__
        by_mask = name.startswith("index") and any(
            isinstance(index, Tensor) and index.dtype == torch.bool
            for index in (args[1] if len(args) > 1 and isinstance(args[1], (list, tuple)) else ())
        )
        if name in VALUE_READS or by_mask:
            raise AssertionError(f"{name} reads a value")
        return func(*args, **(kwargs or {}))


class BackwardOnly:
    """A stepper that takes no steps: on a CPU, Adam itself reads its step counter."""

    def descend(self, loss: Callable[[], LossTerms], group: str = "main") -> LossTerms:  # noqa: ARG002
        terms = loss()
        total(terms).backward()
        return {name: term.detach() for name, term in terms.items()}
