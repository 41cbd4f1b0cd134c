"""The estimate of a long run, with a clock that the test sets."""

import dataclasses
from collections.abc import Iterator
from itertools import count

import pytest

from messi.algorithms.erm import ERM
from messi.cli.common.estimate import Estimate, faster_on_a_cpu
from messi.data.datasets.folder import Folder
from messi.data.datasets.two_subsets import TwoSubsets
from messi.engine.config import RunConfig, TrainingConfig
from messi.models.encoder import EncoderConfig


class Clock:
    """Seconds that pass only if a test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr("messi.cli.common.estimate.time.monotonic", lambda: self.now)

    def train(self, estimate: Estimate, *, seconds: Iterator[float], evaluation: float, every: int, last: int) -> None:
        """Take steps after those done, with an evaluation after every few."""
        for step, took in zip(range(self.done + 1, last + 1), seconds, strict=False):
            self.now += took
            if step % every == 0:
                self.now += evaluation
                estimate.evaluated(step, 0.5)
            estimate.stepped(step)

    done = 0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def slow_start(each: float) -> Iterator[float]:
    """The first five steps take a minute each, as if kernels were compiled."""
    return (60.0 if number < 5 else each for number in count())


def test_an_estimate_follows_the_first_warm_steps_and_is_corrected_after_the_first_evaluation(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    """5 s per step: 4,992 steps are left after step 8, and 4,900 steps and 49 evaluations after step 100."""
    estimate = Estimate("erm -> a", runs=4, evaluate_every=100, faster="faster on a CPU: fewer --steps")
    estimate.started(0, 5000)
    clock.train(estimate, seconds=slow_start(5.0), evaluation=100.0, every=100, last=220)
    line = "erm -> a: about {:.1f} h for this run, {:.1f} days for all 4 runs, {} evaluations{}".format
    this, whole = 4992 * 5, 5000 * 5
    after, each = 4900 * 5 + 49 * 100, 5000 * 5 + 50 * 100
    assert capsys.readouterr().out.splitlines() == [
        line(this / 3600, (this + 3 * whole) / 86400, "without", "; faster on a CPU: fewer --steps"),
        line(after / 3600, (after + 3 * each) / 86400, "with", ""),
    ]


def test_one_line_suffices_if_an_evaluation_comes_before_it(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    """Also in a resumed run, whose steps do not count from 1, and if the last step is evaluated out of turn."""
    estimate = Estimate("erm", runs=1, evaluate_every=4)
    estimate.started(2, 1003)
    clock.done = 2
    clock.train(estimate, seconds=slow_start(4.0), evaluation=8.0, every=4, last=40)
    left = (1003 - 11) * 4 + (250 - 2 + 1) * 8
    assert capsys.readouterr().out == f"erm: about {left / 3600:.1f} h for this run, with evaluations\n"


@pytest.mark.parametrize(("runs", "lines"), [(1, 0), (3, 1)])
def test_only_long_training_gets_an_estimate(
    clock: Clock, runs: int, lines: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """300 steps of one second take five minutes; three such runs take fifteen."""
    estimate = Estimate("erm", runs=runs, evaluate_every=1000)
    estimate.started(0, 300)
    clock.train(estimate, seconds=slow_start(1.0), evaluation=0.0, every=1000, last=300)
    assert len(capsys.readouterr().out.splitlines()) == lines


def test_fast_steps_are_timed_for_ten_seconds(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    estimate = Estimate("erm", runs=1, evaluate_every=10**6)
    estimate.started(0, 10**6)
    clock.train(estimate, seconds=slow_start(1 / 64), evaluation=0.0, every=10**6, last=5 + 639)
    assert capsys.readouterr().out == ""
    clock.done = 5 + 639
    clock.train(estimate, seconds=slow_start(1 / 64), evaluation=0.0, every=10**6, last=5 + 640)
    assert len(capsys.readouterr().out.splitlines()) == 1


def config(backbone: str, **encoder: object) -> RunConfig:
    data = TwoSubsets() if backbone == "mlp" else Folder(path="photos")
    return RunConfig(
        data=data,
        algorithm=ERM.Config(),
        encoder=EncoderConfig(backbone=backbone, **encoder),  # type: ignore[arg-type]
        training=TrainingConfig(steps=700),
    ).resolved()


def test_options_are_named_only_where_they_apply(monkeypatch: pytest.MonkeyPatch) -> None:
    fewer = "fewer --steps (now 700)"
    smaller = "a smaller --backbone such as deit_tiny_patch16_224"
    assert faster_on_a_cpu(config("mlp")) == f"faster on a CPU: {fewer}"
    monkeypatch.setattr(ERM, "tunings", ("full", "head"), raising=False)
    head = "--tune head (encodes every image once)"
    tiny, large = config("deit_tiny_patch16_224"), config("resnet50")
    assert faster_on_a_cpu(tiny) == f"faster on a CPU: {head}, {fewer}"
    assert faster_on_a_cpu(large) == f"faster on a CPU: {head}, {smaller}, {fewer}"
    random = dataclasses.replace(large, encoder=large.encoder.without_weights())
    assert faster_on_a_cpu(random) == f"faster on a CPU: {smaller}, {fewer}"
    monkeypatch.setattr(ERM, "tunings", ("full",), raising=False)
    assert faster_on_a_cpu(large) == f"faster on a CPU: {smaller}, {fewer}"
