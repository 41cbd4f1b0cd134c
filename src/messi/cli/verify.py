"""``messi verify``: whether the files of runs, plans and models are undamaged."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import tyro

from messi.cli.common.options import shown_as
from messi.cli.common.output import say
from messi.core.errors import MessiError
from messi.core.rundir import PLAN, RunDir
from messi.engine.verify import Verified, verify_model, verify_run
from messi.studies.common.plan_file import check_plan_file


def main(arguments: list[str]) -> int:
    """Parse, verify and print."""
    return tyro.cli(verify, prog="messi verify", args=arguments)


def verify(paths: tyro.conf.Positional[Annotated[tuple[Path, ...], shown_as("PATH ...")]], /) -> int:
    """Compare every file of runs, plans or models with its checksum; the exit code is 1 if one is damaged.

    A checksum detects damage, not intent: whoever changes a file on purpose can also write a new checksum.

    Args:
        paths: Run folders, folders that contain runs, plans, or model files.

    """
    if not paths:
        raise MessiError("There is nothing to verify; name at least one run folder or model file.")
    intact = True
    for path in paths:
        for place, found in _verified(path):
            intact = intact and not found.problems
            if not found.problems:
                say(f"intact   {place}: {len(found.files)} files")
            for problem in found.problems:
                say(f"damaged  {problem}")
    return 0 if intact else 1


def _verified(path: Path) -> Iterator[tuple[Path, Verified]]:
    """Yield everything that can be verified at a path, with the findings."""
    if path.is_dir() and RunDir(path).state() == "new":
        inside = sorted(file.parent for file in path.rglob("run.json"))
        if (path / PLAN).exists():
            plan = Verified()
            plan.check(path / PLAN, lambda: check_plan_file(path))
            yield path / PLAN, plan
        models = [file for file in sorted(path.rglob(RunDir(path).model.name)) if file.parent not in inside]
        if not (inside or models or (path / PLAN).exists()):
            raise MessiError(f"{path} contains no runs; name a run folder, a plan or a model file.")
        for folder in inside:
            yield folder, verify_run(folder)
        for file in models:
            yield file, verify_model(file)
    else:
        yield path, verify_run(path) if path.is_dir() else verify_model(path)
