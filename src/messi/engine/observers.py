"""Who is told how a run goes: the terminal, TensorBoard, a stopwatch, or a caller's own object."""

import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import torch
from torch.utils.tensorboard import SummaryWriter

from messi.core.records import Role
from messi.core.run_documents import Inference, Timing

WARM_UP = 100
"""Steps before any are timed: kernels are compiled, a step is recorded, caches fill."""


class Observer(Protocol):
    """Is told of progress; changes nothing."""

    def started(self, step: int, steps: int) -> None:
        """Training begins, or goes on, after ``step`` of ``steps`` steps."""

    def stepped(self, step: int) -> None:
        """A step was taken."""

    def logged(self, step: int, terms: Mapping[str, float]) -> None:
        """Loss terms are known."""

    def evaluated(self, step: int, accuracy: float) -> None:
        """The mean accuracy over the domains of the validation data that the selection rule reads is known."""

    def finished(self) -> None:
        """Training is over, or was stopped."""


class TensorBoard:
    """Writes loss terms and validation accuracy as TensorBoard event files."""

    def __init__(self, folder: Path, validation: Role) -> None:
        self._folder, self._validation = folder, validation
        self._files = ExitStack()

    def started(self, step: int, steps: int) -> None:  # noqa: ARG002 (the protocol's)
        """Open a new event file that hides events after ``step`` of a run that was killed."""
        self._writer = self._files.enter_context(SummaryWriter(self._folder, purge_step=step + 1))

    def stepped(self, step: int) -> None:
        """Nothing to write for a single step."""

    def logged(self, step: int, terms: Mapping[str, float]) -> None:
        """Write the loss terms."""
        for name, value in terms.items():
            self._writer.add_scalar(f"loss/{name}", value, step)

    def evaluated(self, step: int, accuracy: float) -> None:
        """Write the accuracy."""
        self._writer.add_scalar(f"accuracy/{self._validation}", accuracy, step)

    def finished(self) -> None:
        """Close the file, if it was opened."""
        self._files.close()


class Stopwatch:
    """Times steps and prediction, for ``timing.json``.

    It starts and stops at evaluations: there a run waits for its device anyway, so it is no slower for being timed.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._begun = 0
        """The step after which this process began."""
        self._since: tuple[int, float] | None = None
        """The step and the time at which the clock went on."""
        self._paused: float | None = None
        self._steps, self._training, self._whole = 0, 0.0, 0.0
        self._inference: Inference | None = None

    def started(self, step: int, steps: int) -> None:  # noqa: ARG002 (the protocol's)
        """Note where training begins, or goes on."""
        self._begun = step

    def pause(self) -> None:
        """Stop for an evaluation, once the device has done all steps before it."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        self._paused = time.perf_counter()

    def stepped(self, step: int) -> None:
        """Go on, if this was the end of an evaluation and the first steps are over."""
        if self._paused is None:
            return
        now = time.perf_counter()
        if self._since:
            before, start = self._since
            self._steps += step - before
            self._training += self._paused - start
            self._whole += now - start
        if step - self._begun >= WARM_UP:
            self._since = step, now
        self._paused = None

    def logged(self, step: int, terms: Mapping[str, float]) -> None:
        """Nothing to time."""

    def evaluated(self, step: int, accuracy: float) -> None:
        """Nothing to time: the evaluation is over with its step."""

    def finished(self) -> None:
        """Nothing is left open."""

    def predicted(self, images: int, seconds: float) -> None:
        """Note how long the selected model took for the target."""
        self._inference = Inference(images=images, seconds=seconds)

    def timing(self, run: str) -> Timing:
        """Return what was timed; of a run that was resumed, the last part alone. ``run`` is the run's identity."""
        cuda = self._device.type == "cuda"
        return Timing(
            run=run,
            device=torch.cuda.get_device_name(self._device) if cuda else f"CPU, {torch.get_num_threads()} threads",
            resumed_after_step=self._begun,
            steps=self._steps,
            seconds=self._training,
            seconds_with_evaluations=self._whole,
            inference=self._inference,
        )
