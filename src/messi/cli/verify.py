"""``messi verify``: whether runs, plans and model files are as they were written."""

from collections.abc import Iterator
from pathlib import Path

import tyro

from messi.cli.output import say
from messi.cli.plan_file import read_plan
from messi.cli.report import PLAN
from messi.core.errors import MessiError
from messi.core.rundir import RunDir
from messi.engine.verify import Verified, verify_model, verify_run


def main(arguments: list[str]) -> int:
    """Parse, verify and print."""
    return tyro.cli(verify, prog="messi verify", args=arguments)


def verify(paths: tyro.conf.Positional[tuple[Path, ...]], /) -> int:
    """Read every file of runs, plans or model files and compare it with its checksum; exit code 1 if one is damaged.

    A checksum reveals damage, not intent: whoever changes a file on purpose can write its checksum anew.

    Args:
        paths: Run folders, folders with runs in them, plans of 'messi reproduce', or model files.

    """
    if not paths:
        raise MessiError("There is nothing to verify; name at least one run folder or model file.")
    whole = True
    for path in paths:
        for place, found in _verified(path):
            whole = whole and not found.problems
            if not found.problems:
                say(f"whole    {place}: {len(found.files)} files")
            for problem in found.problems:
                say(f"damaged  {problem}")
    return 0 if whole else 1


def _verified(path: Path) -> Iterator[tuple[Path, Verified]]:
    """Yield everything at a path with what was found of it."""
    if path.is_dir() and RunDir(path).state() == "new":
        inside = sorted(file.parent for file in path.rglob("run.json"))
        if (path / PLAN).exists():
            plan = Verified()
            plan.look(path / PLAN, lambda: read_plan(path))
            yield path / PLAN, plan
        elif not inside:
            raise MessiError(f"{path} holds no runs; name a run folder, a plan or a model file.")
        for folder in inside:
            yield folder, verify_run(folder)
    else:
        yield path, verify_run(path) if path.is_dir() else verify_model(path)
