"""Every method on hardware that messi's machines do not have: prediction in float16, and devices without float64."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from messi.algorithms.common import inference
from messi.core.hardware import Hardware
from messi.core.precision import Precision
from messi.engine.stepper import AdamStepper, OptimizerConfig, total
from messi.evaluation.predict import predict

from .test_contract import NAMES, make, separable


@NAMES
def test_predictions_in_float16_are_those_in_float32(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm, inputs = make(name), separable(name, 0).inputs
    exact = predict(algorithm, [inputs])
    monkeypatch.setattr(inference, "hardware_of", lambda _: Hardware(kind="cuda", capability=(7, 5)))
    assert inference.autocast(algorithm, inputs.device).fast_dtype == torch.float16
    assert not inference.autocast(algorithm, inputs.device, training=True)._enabled
    half = predict(algorithm, [inputs])
    assert half.logits.dtype == torch.float32
    assert not torch.equal(half.logits, exact.logits)
    # float16 rounds to 1 in 2,000; a network of a few layers adds up some of these.
    torch.testing.assert_close(half.logits, exact.logits, rtol=2e-2, atol=2e-2 * float(exact.logits.std()))
    if exact.routing is not None and half.routing is not None:
        assert (half.routing - exact.routing).abs().mean() < 0.02


class ForbidFloat64(TorchDispatchMode):
    """Raises an error when an operation returns float64, which Apple's GPUs do not have."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch has no types for it

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if any(isinstance(leaf, Tensor) and leaf.dtype == torch.float64 for leaf in tree_leaves(result)):
            raise AssertionError(f"{func} returns float64")
        return result


def test_the_guard_detects_float64() -> None:
    with ForbidFloat64(), pytest.raises(AssertionError, match="returns float64"):
        torch.ones(2).double()


@NAMES
def test_steps_and_predictions_need_no_float64(name: str) -> None:
    algorithm, batch = make(name), separable(name, 0)
    stepper = AdamStepper(algorithm, OptimizerConfig(learning_rate=1e-3, weight_decay=0.0))
    with ForbidFloat64():
        algorithm.update(batch, stepper)
        predict(algorithm, [batch.inputs])


@NAMES
def test_losses_and_gradients_in_bfloat16_are_near_those_in_float32(name: str) -> None:
    gradients, losses = {}, {}
    for precision in ("float32", "bfloat16"):
        algorithm, batch = make(name), separable(name, 0)
        algorithm.precision = Precision.stated(precision)
        stepper = AdamStepper(algorithm, OptimizerConfig(learning_rate=1e-3, weight_decay=0.0))
        torch.manual_seed(0)
        losses[precision] = total(algorithm.update(batch, stepper))
        found = [p.grad.flatten() for p in algorithm.parameters() if p.grad is not None]
        assert all(gradient.dtype == torch.float32 for gradient in found)
        gradients[precision] = torch.cat(found)
    # bfloat16 rounds to 1 in 256. MixStyle divides by the deviations of rounded maps, and Fish takes a step per domain.
    torch.testing.assert_close(losses["bfloat16"], losses["float32"], rtol=0.02, atol=1e-3)
    error = (gradients["bfloat16"] - gradients["float32"]).norm() / gradients["float32"].norm()
    assert 0 < error < 0.1
