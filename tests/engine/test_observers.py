"""Times of training and prediction are saved separately from the result."""

import dataclasses
import json
import time
from pathlib import Path

import pytest
import torch

from messi.core.rundir import RunDir
from messi.engine.config import RunConfig, TrainingConfig
from messi.engine.observers import Stopwatch
from messi.engine.run import run


class Clock:
    """A clock that tests advance."""

    now = 50.0

    def __call__(self) -> float:
        return self.now


def train(clock: Clock, *, begun: int, steps: int, every: int) -> Stopwatch:
    """A step takes 2 seconds, an evaluation 7 and saving 1."""
    stopwatch = Stopwatch(torch.device("cpu"))
    stopwatch.started(begun, steps)
    for step in range(begun + 1, steps + 1):
        clock.now += 2
        if step % every == 0 or step == steps:
            stopwatch.pause()
            clock.now += 7
            stopwatch.evaluated(step, 0.5)
            clock.now += 1
        stopwatch.stepped(step)
    return stopwatch


@pytest.mark.parametrize(
    ("begun", "steps", "every", "timed", "evaluations"),
    [
        pytest.param(0, 300, 100, 200, 2, id="from the evaluation after 100 steps on"),
        pytest.param(0, 305, 50, 205, 5, id="and to the last, whatever its number"),
        pytest.param(0, 350, 80, 190, 3, id="from the first one after 100 steps, here 160"),
        pytest.param(120, 300, 50, 50, 1, id="after 100 steps of a run that goes on, here 250"),
        pytest.param(250, 300, 50, 0, 0, id="a run that goes on near its end is not timed"),
        pytest.param(0, 90, 30, 0, 0, id="nor is a short one"),
    ],
)
def test_steps_are_timed_after_the_first_hundred(
    monkeypatch: pytest.MonkeyPatch, begun: int, steps: int, every: int, timed: int, evaluations: int
) -> None:
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", clock)
    timing = train(clock, begun=begun, steps=steps, every=every).timing("r")
    assert (timing.steps, timing.seconds) == (timed, 2 * timed)
    assert timing.seconds_with_evaluations == 2 * timed + 8 * evaluations
    assert timing.resumed_after_step == begun


def test_a_run_saves_its_times_outside_of_its_result(tmp_path: Path, quick_config: RunConfig) -> None:
    longer = TrainingConfig(steps=130, evaluate_every=10, batch_per_domain=8)
    folder = RunDir(run(dataclasses.replace(quick_config, training=longer), out=tmp_path / "run", device="cpu").path)
    timing = folder.read_timing()
    assert (timing.steps, timing.resumed_after_step) == (30, 0)
    assert 0 < timing.seconds < timing.seconds_with_evaluations
    assert timing.inference is not None
    assert timing.inference.images == 60, "all of the target"
    assert timing.inference.seconds > 0
    assert "CPU" in timing.device
    assert "seconds" not in folder.result.read_text()


def test_the_result_includes_the_scores_of_every_role_as_a_whole(tmp_path: Path, quick_config: RunConfig) -> None:
    folder = RunDir(run(quick_config, out=tmp_path / "run", device="cpu").path)
    result = json.loads(folder.result.read_text())
    roles = result["roles"]
    assert set(roles) == {"source_val", "target"}
    assert roles["target"]["count"] == 60
    assert roles["target"]["accuracy"] == result["target"]["b2"]
    assert roles["source_val"]["count"] == 3 * 12
    # Domains of one size: the whole is their mean.
    assert roles["source_val"]["accuracy"] == pytest.approx(sum(result["source_val"].values()) / 3)
    assert all(0 <= role["macro_f1"] <= 1 for role in roles.values())
