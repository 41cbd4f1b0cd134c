"""``messi report``: one page about finished runs, or about a plan, which may be partially finished."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from messi.cli.common.options import shown_as
from messi.cli.common.output import say
from messi.core.errors import MessiError
from messi.core.rundir import PLAN, RunDir, runs_inside
from messi.core.text import first_few
from messi.reports.page import write_report


def main(arguments: list[str]) -> int:
    """Parse and write the page."""
    return tyro.cli(report, prog="messi report", args=arguments)


def report(
    folders: tyro.conf.Positional[Annotated[tuple[Path, ...], shown_as("FOLDER ...")]],
    /,
    *,
    out: Annotated[Path | None, shown_as("FILE")] = None,
    algorithm: Annotated[tuple[Path, ...], shown_as("FILE ...")] = (),
) -> int:
    """Write one self-contained page that compares finished runs, or the page of a plan.

    Unfinished runs are left out. For a plan the tables are rewritten, too.

    Args:
        folders: Run folders, folders that contain run folders, or the folder of one plan.
        out: The page to write; by default report.html, for a plan in its folder.
        algorithm: Your own files with methods of the plan. They are executed, so name only files that you trust.

    """
    plans = [folder for folder in folders if (folder / PLAN).exists()]
    if plans and len(folders) > 1:
        raise MessiError(f"{plans[0]} is a plan; a page shows either one plan or some runs, so name only the plan.")
    if plans:
        page = out or plans[0] / "report.html"
        left_out = _report_plan(plans[0], page, algorithm)
    else:
        page = out or Path("report.html")
        left_out = _report_runs([run for folder in folders for run in _runs_of(folder)], page)
    say(*left_out, f"report  {page}")
    return 0


def _runs_of(folder: Path) -> list[Path]:
    """Return a run folder itself, or the run folders in a folder."""
    return [folder] if RunDir(folder).state() != "new" else runs_inside(folder) or [folder]


def _report_runs(runs: Sequence[Path], page: Path) -> list[str]:
    """Write a page about the finished runs; return a line about the others. A path that does not exist is refused."""
    finished = [path for path in runs if not path.exists() or RunDir(path).state() == "done"]
    write_report(finished or runs, page)
    names = first_few([str(path) for path in runs if path not in finished], 10)
    return (
        [f"left out  {names}: not finished runs; repeat the command that started a run to resume it"] if names else []
    )


def _report_plan(folder: Path, page: Path, files: Sequence[Path]) -> list[str]:
    """Write the tables and the page of a plan; return lines about what is left out."""
    # Imported here, because studies need torch and the page of some runs does not.
    from messi.studies.common.output import write_results  # noqa: PLC0415
    from messi.studies.common.plan_file import read_plan  # noqa: PLC0415

    study = read_plan(folder, files)
    plan = study.plan(folder)
    written = write_results(study, plan.outcomes(), folder, page=page)
    return [line for line in (*written.left_out, plan.unplanned_note()) if line]
