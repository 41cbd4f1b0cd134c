"""What a CUDA graph records must not look at a value: no waiting for the device, no shape that depends on data."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from messi.algorithms._base import ALGORITHMS, LossAlgorithm, build
from messi.core.batch import Batch, Task
from messi.engine.stepper import total
from messi.models.encoder import EncoderConfig

LOOKING = {
    "_local_scalar_dense",
    "is_nonzero",
    "equal",
    "nonzero",
    "masked_select",
    "_unique2",
    "unique_dim",
    "bincount",
}


class Blind(TorchDispatchMode):
    """Raises where the value of a tensor is asked for."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func.overloadpacket.__name__
        by_mask = name.startswith("index") and any(
            isinstance(index, Tensor) and index.dtype == torch.bool
            for index in (args[1] if len(args) > 1 and isinstance(args[1], (list, tuple)) else ())
        )
        if name in LOOKING or by_mask:
            raise AssertionError(f"{name} looks at a value")
        return func(*args, **(kwargs or {}))


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


@pytest.mark.parametrize("name", ["coral", "group_dro", "irm", "mixstyle", "mixup", "mmd", "vrex"])
def test_a_step_looks_at_no_value(name: str) -> None:
    torch.manual_seed(0)
    task = Task(input_shape=(2, 12, 12), num_classes=3, num_domains=4)
    algorithm = build(ALGORITHMS.config(name)(), task=task, encoder=EncoderConfig(backbone="tiny_cnn"))
    assert isinstance(algorithm, LossAlgorithm)
    assert algorithm.phase(1) is not None
    domains = torch.tensor([0, 3, 1, 0, 1, 0, 1, 1, 0])
    batch = Batch(inputs=torch.randn(9, 2, 12, 12), labels=torch.randint(3, (9,)), domains=domains, step=1)
    with Blind():
        total(algorithm.loss(batch)).backward()
