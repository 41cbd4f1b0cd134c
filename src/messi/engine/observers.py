"""Who is told how a run goes: the terminal, TensorBoard, or a caller's own object."""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

from torch.utils.tensorboard import SummaryWriter


class Observer(Protocol):
    """Is told of progress; changes nothing."""

    def started(self, step: int, steps: int) -> None:
        """Training begins, or goes on, after ``step`` of ``steps`` steps."""

    def stepped(self, step: int) -> None:
        """A step was taken."""

    def logged(self, step: int, terms: Mapping[str, float]) -> None:
        """Loss terms are known."""

    def evaluated(self, step: int, accuracy: float) -> None:
        """The mean source validation accuracy is known."""

    def finished(self) -> None:
        """Training is over, or was stopped."""


class TensorBoard:
    """Writes loss terms and validation accuracy as TensorBoard event files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
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
        self._writer.add_scalar("accuracy/source_val", accuracy, step)

    def finished(self) -> None:
        """Close the file, if it was opened."""
        self._files.close()
