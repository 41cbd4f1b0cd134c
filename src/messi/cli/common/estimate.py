"""How long training will take: one line after the first steps of a long run."""

import time
from collections.abc import Mapping

from messi.algorithms.common.base import ALGORITHMS
from messi.cli.common.output import say
from messi.core.text import duration
from messi.engine.config import RunConfig
from messi.models.encoder import SMALL

_LONG = 600.0
"""Seconds: shorter runs need no estimate."""
_WARM_UP = 5
"""Untimed steps at the start: kernels are compiled, caches fill."""
_STEPS, _SECONDS = 3, 10.0
"""How many steps are timed at least, and for how long."""
_SMALLEST = "deit_tiny_patch16_224"
"""The default backbone for images, and the smallest that we recommend."""


class Estimate:
    """Prints the expected time of this run and of all runs, once steps have been timed, if it is long.

    The time of an evaluation is known only after the first one. A line before it says so, and a second one follows.
    """

    def __init__(self, name: str, *, runs: int, evaluate_every: int, faster: str = "") -> None:
        """Take the number of runs that are left, this one included, and a hint for impatient users."""
        self._name, self._runs, self._every, self._faster = name, runs, evaluate_every, faster
        self._timed, self._seconds = 0, 0.0
        """Steps without an evaluation, and how long they took together."""
        self._evaluation: float | None = None
        """Seconds of the first warm step with an evaluation."""
        self._evaluating = False
        self._lines, self._complete = 0, False
        """The lines printed so far, and whether the last one includes evaluations."""

    def started(self, step: int, steps: int) -> None:
        """Start the clock."""
        self._first, self._steps, self._before = step, steps, time.monotonic()

    def logged(self, step: int, terms: Mapping[str, float]) -> None:
        """Loss terms do not change the estimate."""

    def evaluated(self, step: int, accuracy: float) -> None:  # noqa: ARG002 (part of the protocol)
        """Note that this step will have taken longer."""
        self._evaluating = True

    def stepped(self, step: int) -> None:
        """Time the step, and print what is new."""
        now = time.monotonic()
        took, self._before = now - self._before, now
        evaluating, self._evaluating = self._evaluating, False
        if step - self._first <= _WARM_UP:
            return
        if evaluating:
            self._evaluation = self._evaluation or took
        else:
            self._timed, self._seconds = self._timed + 1, self._seconds + took
        if self._timed >= _STEPS and self._seconds >= _SECONDS:
            self._say(step)

    def finished(self) -> None:
        """Nothing to print."""

    def _say(self, step: int) -> None:
        known = self._evaluation is not None
        this, others = self._left(step), (self._runs - 1) * self._left(0)
        if self._complete or (self._lines and not known) or this + others < _LONG:
            return
        parts = [f"about {duration(this)} for this run"]
        if self._runs > 1:
            parts.append(f"{duration(this + others)} for all {self._runs} runs")
        parts.append(f"{'with' if known else 'without'} evaluations")
        hint = f"; {self._faster}" if self._faster and not self._lines else ""
        say(f"{self._name}: {', '.join(parts)}{hint}")
        self._lines, self._complete = self._lines + 1, known

    def _left(self, done: int) -> float:
        """Return the seconds that a run takes after some steps."""
        step = self._seconds / self._timed
        evaluation = max((self._evaluation or 0.0) - step, 0.0)
        evaluations = self._steps // self._every - done // self._every + bool(self._steps % self._every)
        return (self._steps - done) * step + evaluations * evaluation


def faster_on_a_cpu(config: RunConfig) -> str:
    """Return which options make a run with a resolved config faster on a CPU."""
    encoder, method = config.encoder, ALGORITHMS.load(config.algorithm.name)
    options = []
    if encoder.backbone not in SMALL:
        trains_all = encoder.tune == "full" and "head" in method.tunings
        if trains_all and (encoder.pretrained or encoder.weights):
            options.append("--tune head (encodes every image once)")
        if encoder.backbone != _SMALLEST:
            options.append(f"a smaller --backbone such as {_SMALLEST}")
    return f"faster on a CPU: {', '.join([*options, f'fewer --steps (now {config.training.steps})'])}"
