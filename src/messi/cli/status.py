"""``messi status``: how far a plan is, while it runs or afterwards, from any terminal that sees its folder."""

import time
from pathlib import Path
from typing import Annotated

import tyro

from messi.cli.common.options import shown_as
from messi.cli.common.output import Terminal, say
from messi.cli.common.plan_status import live_status, status_lines
from messi.core.errors import MessiError
from messi.core.rundir import PLAN
from messi.sweeps.run_states import ListedRun, read_run_list
from messi.sweeps.status import UNFINISHED, PlanStatus, PlanWatch

_INTERVAL = 60.0
"""Seconds between two reports of --watch in a file or pipe."""


def main(arguments: list[str]) -> int:
    """Parse and print."""
    return tyro.cli(status, prog="messi status", args=arguments)


def status(
    plan: tyro.conf.Positional[Annotated[Path, shown_as("PLAN")]],
    /,
    *,
    watch: Annotated[bool, shown_as("")] = False,
) -> int:
    """Print which runs of a plan are done, running, stopped, failed or waiting, the rate and the time left.

    Args:
        plan: The folder of a plan, which contains plan.json.
        watch: Repeat until all runs are done or have failed: every 2 s in a terminal, else every 60 s.

    """
    if not (plan / PLAN).exists():
        raise MessiError(f"{plan} is not a plan: {PLAN} is missing. Name the folder of a plan.")
    watched = PlanWatch(plan, _runs(plan))
    found = watched.read()
    if watch and Terminal().is_terminal:
        with live_status(watched):
            while _continues(found):
                time.sleep(1)
                found = watched.read()
        return 0
    say(*status_lines(found))
    while watch and _continues(found):
        time.sleep(_INTERVAL)
        found = watched.read()
        say("", *status_lines(found))
    return 0


def _continues(found: PlanStatus) -> bool:
    return any(run.activity in UNFINISHED for run in found.runs)


def _runs(folder: Path) -> tuple[ListedRun, ...]:
    """Return the runs of a plan from the list in its folder, or from the plan itself if there is none."""
    if (listed := read_run_list(folder)) is not None:
        return listed
    # Imported here, because studies need torch, which takes seconds.
    from messi.studies.common.plan_file import read_plan  # noqa: PLC0415

    return tuple(run.listed for run in read_plan(folder).plan(folder).runs)
