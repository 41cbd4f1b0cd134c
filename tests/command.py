"""The command ``messi``, called in this process: starting another one would load torch for every call."""

import io
import os
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from subprocess import CompletedProcess
from unittest import mock

from messi.cli.main import main


def messi(*arguments: str | Path, cwd: Path | None = None, **environment: str) -> CompletedProcess[str]:
    """Return exit code and output of a command."""
    words = [str(argument) for argument in arguments]
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err), chdir(cwd or Path()), mock.patch.dict(os.environ, environment):
        code = main(words)
    stdout, stderr = (output.buffer.getvalue().decode() for output in (out, err))
    return CompletedProcess(words, code, stdout, stderr)
