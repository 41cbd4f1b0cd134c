"""MA and EMA against float64 means of recorded weights."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from messi.engine.averaging import running
from messi.engine.averaging.running import RunningAverage

from .helpers import Recorded


@pytest.mark.parametrize("decay", [1.0, 0.999])
def test_thousands_of_small_steps_are_not_lost_in_rounding(decay: float) -> None:
    """Weights like those of LayerNorm: a float32 mean that is updated at every step is wrong by 1e-5 and more."""
    draw = torch.Generator().manual_seed(0)
    drift = torch.randn(200, generator=draw)
    module = nn.ParameterList([torch.ones(200)])
    averager, plain, total, mass = RunningAverage(module, decay=decay), torch.ones(200), torch.zeros(200).double(), 0.0
    for step in range(1, 4001):
        with torch.no_grad():
            module[0] -= 1e-5 * (drift * 0.9995**step + torch.randn(200, generator=draw))
        averager.add(step)
        plain.lerp_(module[0].detach(), max(1 / step, 1 - decay))
        total, mass = decay * total + module[0].detach().double(), decay * mass + 1
    mean = total / mass
    error = (averager.average().mean[0].double() / mean - 1).abs().max()
    assert error < 1e-6
    assert (plain.double() / mean - 1).abs().max() > 5 * error, "blocks are not needed"


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    first=st.integers(1, 9),
    steps=st.integers(9, 40),
    decay=st.sampled_from([0.0, 0.5, 0.97, 1.0]),
    block=st.integers(1, 12),
)
def test_the_mean_is_that_of_the_definition_and_a_restored_state_continues_alike(
    first: int, steps: int, decay: float, block: int
) -> None:
    """The only weight is the number of the step. Evaluations, even before the first averaged step, change nothing."""
    module = nn.ParameterList([torch.zeros(1, dtype=torch.float64)])
    averager = RunningAverage(module, first=first, decay=decay)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "BLOCK", block)
        for step in range(1, steps + 1):
            module[0].data.fill_(step)
            averager.add(step)
            averager.end_segment(step, 1.0)
            fresh = RunningAverage(module, first=first, decay=decay)
            fresh.load({name: tensor.clone() for name, tensor in averager.tensors().items()}, averager.description())
            averager = fresh
            assert len(averager.tensors()) <= 2, "more than needed"
        shares = [decay ** (steps - step) for step in range(first, steps + 1)]
        mean = sum(share * step for share, step in zip(shares, range(first, steps + 1), strict=True)) / sum(shares)
        for _ in range(2):  # it can be asked for twice
            average = averager.average()
            assert (average.first, average.last, averager.ended) == (first, steps, False)
            assert average.mean[0].item() == pytest.approx(mean, rel=1e-12)


@pytest.mark.parametrize(("averaging", "decay"), [("ma", 1.0), ("ema", 0.9)])
@pytest.mark.parametrize(("algorithm", "options"), [("fish", {}), ("group_dro", {"flatness": "sam"})])
def test_the_model_is_the_mean_from_the_start_to_the_last_step(
    record: Callable[..., Recorded], algorithm: str, options: dict[str, str], averaging: str, decay: float
) -> None:
    """Fish has a second network with its own step; the domain weights of Group DRO are a buffer."""
    done = record(
        algorithm, averaging=averaging, average_from=0.2, ema_decay=0.9, learning_rate=0.1, evaluate_every=5, **options
    )
    done.require_mean_of(8, 42, decay)
