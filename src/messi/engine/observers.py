"""Observers follow the progress of a run: TensorBoard, a stopwatch, the terminal, or a caller's own object."""

import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import torch
from torch.utils.tensorboard import SummaryWriter

from messi.core.hardware import hardware_of
from messi.core.records import Role
from messi.core.run_documents import Inference, Timing

WARM_UP = 100
"""Untimed steps at the start: kernels are compiled, a step is captured, caches fill."""


class Observer(Protocol):
    """Follows the progress of a run without affecting it."""

    def started(self, step: int, steps: int) -> None:
        """Training starts, or resumes, after ``step`` of ``steps`` steps."""

    def stepped(self, step: int) -> None:
        """A step was taken."""

    def logged(self, step: int, terms: Mapping[str, float]) -> None:
        """Mean loss terms since the last call are available."""

    def evaluated(self, step: int, accuracy: float) -> None:
        """The accuracy on the selection rule's validation data, as a mean over domains, is available."""

    def finished(self) -> None:
        """The run has ended: finished, stopped or failed."""


class TensorBoard:
    """Writes loss terms and validation accuracy as TensorBoard event files."""

    def __init__(self, folder: Path, validation: Role) -> None:
        self._folder, self._validation = folder, validation
        self._files = ExitStack()

    def started(self, step: int, steps: int) -> None:  # noqa: ARG002 (the protocol's)
        """Open a new event file that hides later events of an interrupted run."""
        self._writer = self._files.enter_context(SummaryWriter(self._folder, purge_step=step + 1))

    def stepped(self, step: int) -> None:
        """Write nothing for a single step."""

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

    It starts and stops at evaluations, where a run waits for its device anyway, so timing costs nothing.
    """

    def __init__(self, device: torch.device, processes: int = 1) -> None:
        self._device, self._processes = device, processes
        self._resumed_after = 0
        """The step after which this process started."""
        self._since: tuple[int, float] | None = None
        """The step and the time at which the clock was last started."""
        self._paused: float | None = None
        self._steps, self._training, self._whole = 0, 0.0, 0.0
        self._inference: Inference | None = None

    def started(self, step: int, steps: int) -> None:  # noqa: ARG002 (the protocol's)
        """Note the step after which training starts or resumes."""
        self._resumed_after = step

    def pause(self) -> None:
        """Stop for an evaluation, once the device has finished all steps before it."""
        if self._device.type != "cpu":
            torch.accelerator.synchronize(self._device)
        self._paused = time.perf_counter()

    def stepped(self, step: int) -> None:
        """Restart after an evaluation, unless the run is still warming up."""
        if self._paused is None:
            return
        now = time.perf_counter()
        if self._since:
            before, start = self._since
            self._steps += step - before
            self._training += self._paused - start
            self._whole += now - start
        if step - self._resumed_after >= WARM_UP:
            self._since = step, now
        self._paused = None

    def logged(self, step: int, terms: Mapping[str, float]) -> None:
        """Time nothing."""

    def evaluated(self, step: int, accuracy: float) -> None:
        """Time nothing: the evaluation ends with its step."""

    def finished(self) -> None:
        """Close nothing."""

    def predicted(self, images: int, seconds: float) -> None:
        """Note how long the selected model took to predict the target."""
        self._inference = Inference(images=images, seconds=seconds)

    def timing(self, run: str) -> Timing:
        """Return the times, for a resumed run only those since it resumed; ``run`` is the run's identity."""
        name = hardware_of(self._device).name or f"CPU, {torch.get_num_threads()} threads"
        return Timing(
            run=run,
            device=name if self._processes == 1 else f"{self._processes} x {name}",
            resumed_after_step=self._resumed_after,
            steps=self._steps,
            seconds=self._training,
            seconds_with_evaluations=self._whole,
            inference=self._inference,
        )
