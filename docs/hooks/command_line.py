"""The reference page of the command line: what ``--help`` prints, in the program's own words."""

import os
import subprocess
import sys
import textwrap

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

_PAGE = "reference/command_line.md"
_MARK = "=====\n"
_WIDTH = 80
_PRINT_ALL = """
from messi.cli.main import COMMANDS, main
calls = [[]] + [[name] for name in COMMANDS]
for call in calls:
    print(f"====={chr(10)}{' '.join(['messi', *call])}", flush=True)
    main([*call, "--help"])
"""
_ABOUT = """# Command line

This page is generated from `--help`. `messi train --data DATA --algorithm METHOD --help` also lists the options of
that data set and that method; below they are those of `rotated_colored_mnist` and `messi`. The options of all methods,
with defaults and search ranges, are printed by `messi list algorithms`.

A command exits with 0 on success, 1 if `verify` finds damage or a run of `reproduce` fails, 2 on bad input and 130
when interrupted.
"""


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the page."""
    environment = {**os.environ, "COLUMNS": str(_WIDTH), "NO_COLOR": "1"}
    # The program is messi itself, and what it prints is part of the page.
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", _PRINT_ALL], env=environment, capture_output=True, text=True, check=True
    )
    page = _ABOUT
    for part in done.stdout.split(_MARK)[1:]:
        call, text = part.split("\n", 1)
        lines = [part for line in text.rstrip().splitlines() for part in textwrap.wrap(line, _WIDTH) or [""]]
        page += "\n".join([f"\n## `{call}`\n\n```text", *lines, "```\n"])
    files.append(File.generated(config, _PAGE, content=page))
    return files
