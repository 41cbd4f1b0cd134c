"""The progress of a run or of work on data: a bar in a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable, Mapping

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

from messi.cli.common.output import Terminal, note, say
from messi.core.text import pace, printable
from messi.data.progress import DataProgress
from messi.engine.observers import Observer

_QUIET = 10.0
"""Seconds without a line after which loss terms get one."""


def progress(name: str, about: Callable[[], str] = str) -> Observer:
    """Return the observer that suits standard output; plain lines begin with a description of the run."""
    return Bar(name) if Terminal().is_terminal else PlainLines(name, about)


def data_progress() -> DataProgress:
    """Return the observer of work on data that suits standard error."""
    return DataBar() if Terminal(stderr=True).is_terminal else DataLines()


class _Speed(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(pace(task.speed or 0))


class Bar:
    """A progress bar with speed, time left, the loss terms and the last validation accuracy."""

    def __init__(self, name: str) -> None:
        status = Column(ratio=1, no_wrap=True, overflow="ellipsis")  # the part that a narrow terminal cuts
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),  # names of domains may contain brackets and braces
            BarColumn(bar_width=16),
            MofNCompleteColumn(),
            _Speed(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[status]}", table_column=status),
            expand=True,
            console=Terminal(),
        )
        self._name, self._terms, self._accuracy = printable(name), "", ""

    def started(self, step: int, steps: int) -> None:
        """Show the bar."""
        self._progress.start()
        self._task = self._progress.add_task(self._name, total=steps, completed=step, status="")

    def stepped(self, step: int) -> None:
        """Move the bar."""
        self._progress.update(self._task, completed=step, status=f"{self._accuracy}{self._terms}")

    def logged(self, step: int, terms: Mapping[str, float]) -> None:  # noqa: ARG002 (part of the protocol)
        """Show the loss terms."""
        self._terms = format_terms(terms)

    def evaluated(self, step: int, accuracy: float) -> None:  # noqa: ARG002
        """Show the accuracy."""
        self._accuracy = f"val {accuracy:.1%}  "

    def finished(self) -> None:
        """Leave the bar on the screen."""
        self._progress.stop()


class PlainLines:
    """A line at the start and for every evaluation, and one with the loss terms after a while without any."""

    def __init__(self, name: str, about: Callable[[], str] = str) -> None:
        self._name, self._about, self._terms, self._logged = name, about, "", False

    def started(self, step: int, steps: int) -> None:
        """Print where training begins, and the description of the run."""
        self._first, self._steps, self._start = step, steps, time.monotonic()
        begin = f"resuming after step {step} of {steps}" if step else f"{steps} steps"
        self._print(", ".join(filter(None, (begin, self._about()))))

    def logged(self, step: int, terms: Mapping[str, float]) -> None:  # noqa: ARG002 (part of the protocol)
        """Keep the terms for the next line."""
        self._terms, self._logged = format_terms(terms), True

    def evaluated(self, step: int, accuracy: float) -> None:
        """Print a line."""
        self._print_step(step, f"val {accuracy:.1%}")

    def stepped(self, step: int) -> None:
        """Print new loss terms if the last line is old; the evaluation of this step, if any, is already printed."""
        if self._logged and time.monotonic() - self._printed >= _QUIET:
            self._print_step(step)
        self._logged = False

    def finished(self) -> None:
        """Nothing to print."""

    def _print_step(self, step: int, *found: str) -> None:
        speed = (step - self._first) / max(time.monotonic() - self._start, 1e-9)
        self._print("  ".join(filter(None, (f"step {step}/{self._steps}", *found, pace(speed), self._terms))))

    def _print(self, text: str) -> None:
        say(f"{self._name}: {text}")
        self._printed = time.monotonic()


class DataLines:
    """Two lines on standard error for every piece of work on data."""

    def started(self, text: str, total: int | None) -> None:
        """Print what begins."""
        self._start, self._done, self._total = time.monotonic(), 0, total
        self.noted(text)

    def advanced(self, number: int) -> None:
        """Count."""
        self._done += number

    def finished(self) -> None:
        """Print how long it took."""
        end = "done" if self._done >= (self._total or 1) else "stopped"
        self.noted(f"{end} after {time.monotonic() - self._start:.1f} s")

    def noted(self, text: str) -> None:
        """Print a line."""
        note(text)


class DataBar(DataLines):
    """A progress bar for every piece of work on data."""

    def started(self, text: str, total: int | None) -> None:
        """Print what begins, and a bar below."""
        super().started(text, total)
        self._bar = Progress(BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=Terminal(stderr=True))
        self._bar.start()
        self._task = self._bar.add_task("", total=total)

    def advanced(self, number: int) -> None:
        """Move the bar."""
        super().advanced(number)
        self._bar.advance(self._task, number)

    def finished(self) -> None:
        """Leave the bar on the screen and print how long it took."""
        self._bar.stop()
        super().finished()


def format_terms(terms: Mapping[str, float]) -> str:
    """Return loss terms in one short line."""
    return "  ".join(f"{name} {value:.3g}" for name, value in terms.items())
