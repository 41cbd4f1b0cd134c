"""A step with experts in blocks can be recorded: it looks at no value, and the recording leaves the same bits."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from moe_toys import NAMES, make, separable
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from messi.core.batch import Batch
from messi.core.seeding import deterministic
from messi.engine.capture import Updater
from messi.engine.stepper import AdamStepper, total

EACH = pytest.mark.parametrize("name", NAMES)


class Blind(TorchDispatchMode):
    """Raises where the value of a tensor is asked for, which no recorded step can."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        name = func.overloadpacket.__name__
        indices = args[1] if name.startswith("index") and isinstance(args[1], list | tuple) else ()
        by_mask = any(isinstance(index, Tensor) and index.dtype == torch.bool for index in indices)
        assert not by_mask, "a shape depends on values"
        assert name not in {"_local_scalar_dense", "is_nonzero", "nonzero", "masked_select", "_unique2"}, name
        return func(*args, **(kwargs or {}))


class Descent:
    """A stepper that is nothing but a backward pass and a small step."""

    def __init__(self, algorithm: Any) -> None:
        self.parameters = list(algorithm.parameters())

    def descend(self, loss: Callable[[], dict[str, Tensor]], group: str = "main") -> dict[str, Tensor]:  # noqa: ARG002
        terms = loss()
        total(terms).backward()
        with torch.no_grad():
            for parameter in self.parameters:
                parameter.sub_(parameter.grad, alpha=1e-3)
        return terms


@EACH
def test_a_step_looks_at_no_value(name: str) -> None:
    algorithm = make(name)
    assert algorithm.phase(1) == algorithm.phase(2) is not None
    with Blind():
        algorithm.update(separable(0), Descent(algorithm))


@EACH
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_captured_steps_leave_the_bits_of_eager_ones(name: str) -> None:
    device, states = torch.device("cuda"), []
    for capture in (False, True):
        algorithm = make(name).to(device)
        stepper = AdamStepper(algorithm, learning_rate=1e-3, weight_decay=1e-4)
        update = Updater(algorithm, stepper, device, capture=capture)
        with deterministic():
            for step in range(8):
                torch.manual_seed(step)
                batch = separable(step)
                update(Batch(batch.inputs.to(device), batch.labels.to(device), batch.domains.to(device), step=step + 1))
        assert update.captured is capture
        states.append(algorithm.state_dict())
    assert all(torch.equal(states[1][key], value) for key, value in states[0].items())
