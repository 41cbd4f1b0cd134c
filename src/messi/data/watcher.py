"""Who is told how long work on data goes, and what was noticed."""

import logging
from collections.abc import Sequence
from typing import Protocol


class Watcher(Protocol):
    """Is told of progress; changes nothing."""

    def started(self, text: str, total: int | None) -> None:
        """Work of ``total`` units begins."""

    def advanced(self, number: int) -> None:
        """So many more units are done."""

    def finished(self) -> None:
        """It is over, or was stopped."""

    def noted(self, text: str) -> None:
        """Something was noticed that a person should know."""


class LogWatcher:
    """Says what was noticed in Python's log, and nothing of progress."""

    def started(self, text: str, total: int | None) -> None:
        """Nothing to say."""

    def advanced(self, number: int) -> None:
        """Nothing to say."""

    def finished(self) -> None:
        """Nothing to say."""

    def noted(self, text: str) -> None:
        """Write a warning."""
        logging.getLogger("messi").warning(text)


def some(names: Sequence[str], number: int = 3) -> str:
    """Return the first few of many names, and how many more there are."""
    more = f" and {len(names) - number:,} more" if len(names) > number else ""
    return ", ".join(names[:number]) + more
