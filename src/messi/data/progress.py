"""The interface through which downloading, decoding and verifying data report their progress."""

import logging
from typing import Protocol


class DataProgress(Protocol):
    """Receives the progress of work on data, without affecting it."""

    def started(self, text: str, total: int | None) -> None:
        """Work of ``total`` units begins."""

    def advanced(self, number: int) -> None:
        """``number`` more units are done."""

    def finished(self) -> None:
        """The work is over, or was interrupted."""

    def noted(self, text: str) -> None:
        """Report something that the user should know."""


class LogProgress:
    """Writes notes to Python's log as warnings, and no progress."""

    def started(self, text: str, total: int | None) -> None:
        """Ignore it."""

    def advanced(self, number: int) -> None:
        """Ignore it."""

    def finished(self) -> None:
        """Ignore it."""

    def noted(self, text: str) -> None:
        """Log a warning."""
        logging.getLogger("messi").warning(text)
