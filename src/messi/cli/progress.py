"""How a run is shown while it goes: a bar in a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Mapping

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

from messi.data.watcher import Watcher
from messi.engine.observers import Observer


def progress(name: str) -> Observer:
    """Return the observer that suits the output."""
    return Bar(name) if Console().is_terminal else PlainLines(name)


def data_progress() -> Watcher:
    """Return the watcher of work on data that suits the output."""
    return DataBar() if Console(stderr=True).is_terminal else DataLines()


class _Speed(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:.1f} steps/s" if task.speed else "- steps/s")


class Bar:
    """A progress bar with speed, time left, the loss terms and the last validation accuracy."""

    def __init__(self, name: str) -> None:
        status = Column(ratio=1, no_wrap=True, overflow="ellipsis")  # what a narrow terminal may cut
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),  # names of domains may hold brackets and braces
            BarColumn(bar_width=16),
            MofNCompleteColumn(),
            _Speed(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[status]}", table_column=status),
            expand=True,
        )
        self._name, self._terms, self._accuracy = name, "", ""

    def started(self, step: int, steps: int) -> None:
        """Show the bar."""
        self._progress.start()
        self._task = self._progress.add_task(self._name, total=steps, completed=step, status="")

    def stepped(self, step: int) -> None:
        """Move the bar."""
        self._progress.update(self._task, completed=step, status=f"{self._accuracy}{self._terms}")

    def logged(self, step: int, terms: Mapping[str, float]) -> None:  # noqa: ARG002 (the protocol's)
        """Show the loss terms."""
        self._terms = format_terms(terms)

    def evaluated(self, step: int, accuracy: float) -> None:  # noqa: ARG002
        """Show the accuracy."""
        self._accuracy = f"val {accuracy:.1%}  "

    def finished(self) -> None:
        """Leave the bar as it is."""
        self._progress.stop()


class PlainLines:
    """One line for every evaluation, for logs and pipes."""

    def __init__(self, name: str) -> None:
        self._name, self._terms = name, ""

    def started(self, step: int, steps: int) -> None:
        """Say where training begins."""
        self._first, self._steps, self._start = step, steps, time.monotonic()
        if step:
            self._print(f"going on after step {step} of {steps}")

    def stepped(self, step: int) -> None:
        """Nothing to say for a single step."""

    def logged(self, step: int, terms: Mapping[str, float]) -> None:  # noqa: ARG002
        """Keep the terms for the next line."""
        self._terms = format_terms(terms)

    def evaluated(self, step: int, accuracy: float) -> None:
        """Print a line."""
        speed = (step - self._first) / max(time.monotonic() - self._start, 1e-9)
        self._print(f"step {step}/{self._steps}  val {accuracy:.1%}  {speed:.2f} steps/s  {self._terms}")

    def finished(self) -> None:
        """Nothing is left open."""

    def _print(self, text: str) -> None:
        sys.stdout.write(f"{self._name}: {text}\n")
        sys.stdout.flush()


class DataLines:
    """Two lines for every piece of work on data, on the error output: results go to the other."""

    def started(self, text: str, total: int | None) -> None:
        """Say what begins."""
        self._start, self._done, self._total = time.monotonic(), 0, total
        self.noted(text)

    def advanced(self, number: int) -> None:
        """Count."""
        self._done += number

    def finished(self) -> None:
        """Say how long it took."""
        end = "done" if self._done >= (self._total or 1) else "stopped"
        self.noted(f"{end} after {time.monotonic() - self._start:.1f} s")

    def noted(self, text: str) -> None:
        """Print a line."""
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


class DataBar(DataLines):
    """A progress bar for every piece of work on data."""

    def started(self, text: str, total: int | None) -> None:
        """Show the bar under what it is of."""
        super().started(text, total)
        self._bar = Progress(BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=Console(stderr=True))
        self._bar.start()
        self._task = self._bar.add_task("", total=total)

    def advanced(self, number: int) -> None:
        """Move the bar."""
        super().advanced(number)
        self._bar.advance(self._task, number)

    def finished(self) -> None:
        """Leave the bar as it is and say how long it took."""
        self._bar.stop()
        super().finished()


def format_terms(terms: Mapping[str, float]) -> str:
    """Return loss terms in one short line."""
    return "  ".join(f"{name} {value:.3g}" for name, value in terms.items())
