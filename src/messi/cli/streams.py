"""The standard streams of a command, which may be closed, full, or shown by a terminal that obeys what is written."""

import contextlib
import errno
import io
import os
import re
import sys
from collections.abc import Iterator, Sequence
from typing import TextIO

from messi.core.text import printable

_LOST = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE)
_STYLE = re.compile(r"\x1b\[[\d;]*m")


def open_streams() -> None:
    """Let the standard streams take any name, also one that is no text, and everything where they are closed."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: PTH123, SIM115 (as long as the process)
        if isinstance(stream := getattr(sys, name), io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


@contextlib.contextmanager
def escaped_errors(arguments: Sequence[str]) -> Iterator[None]:
    """Keep control characters in arguments from the terminal where the parser of options quotes them in an error."""
    odd = any(printable(argument) != argument for argument in arguments)
    with contextlib.redirect_stderr(_Escaped(sys.stderr)) if odd else contextlib.nullcontext():
        yield


class _Escaped(io.TextIOBase):
    """Writes text without colours to another stream, with control characters made visible."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text, and its line breaks as they are."""
        lines = _STYLE.sub("", text).split("\n")
        self._stream.write("\n".join(map(printable, lines)))
        return len(text)

    def flush(self) -> None:
        """Write what was held back."""
        self._stream.flush()


def is_of_output(error: OSError) -> bool:
    """Tell whether a standard stream raised an error: it names no file, and all other writes name theirs."""
    return error.filename is None and error.errno in _LOST


def silence_broken_streams() -> None:
    """Drop what a stream cannot write, which Python would try once more at its end and complain about."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
