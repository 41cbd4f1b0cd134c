"""Runs that tests kill."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import PIPE, CompletedProcess

import pytest

from tests.data.hangs import within

DRIVER = Path(__file__).with_name("driver.py")


@pytest.fixture(scope="session")
def drive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., CompletedProcess[str]]]:
    """Return a function that trains in a separate process, which ``driver.py`` kills at a given place."""
    folder = tmp_path_factory.mktemp("driver")
    outputs = [folder / "stdout", folder / "stderr"]
    environment = os.environ | {"MESSI_HOME": str(folder / "home")}
    with subprocess.Popen(
        [sys.executable, str(DRIVER)], cwd=folder, env=environment, stdin=PIPE, stdout=PIPE, text=True
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        requests, codes = server.stdin, server.stdout

        def run(*arguments: str | Path) -> CompletedProcess[str]:
            words = [str(argument) for argument in arguments]
            requests.write(json.dumps([*map(str, outputs), words]) + "\n")
            requests.flush()
            with within(300):
                code = int(codes.readline())
            return CompletedProcess(words, code, *(output.read_text() for output in outputs))

        yield run
