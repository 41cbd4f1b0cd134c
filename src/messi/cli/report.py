"""``messi report``: one page from finished runs, or from a partially finished plan."""

import importlib
from collections.abc import Sequence
from pathlib import Path

import tyro

from messi.cli.output import say
from messi.core.errors import MessiError
from messi.core.rundir import RunDir, runs_inside
from messi.core.text import first_few
from messi.reports.page import write_report

PLAN = "plan.json"


def main(arguments: list[str]) -> int:
    """Parse and write the page."""
    return tyro.cli(report, prog="messi report", args=arguments)


def report(folders: tyro.conf.Positional[tuple[Path, ...]], /, *, out: Path | None = None) -> int:
    """Build one self-contained page that compares finished runs, or that of a plan.

    Args:
        folders: Run folders, or folders of run folders such as those of several targets; unfinished runs are left
            out. Or the folder of one plan of 'messi reproduce', whose tables are then written anew, too.
        out: The page to write; by default report.html, that of a plan in its folder.

    """
    plans = [folder for folder in folders if (folder / PLAN).exists()]
    if plans and len(folders) > 1:
        raise MessiError(f"{plans[0]} is a plan; a page shows one plan or some runs, so name it alone.")
    if plans:
        page = out or plans[0] / "report.html"
        # Imported here, because an experiment needs torch and the page of some runs does not.
        left_out: list[str] = importlib.import_module("messi.cli.plan_report").report_plan(plans[0], page)
    else:
        page = out or Path("report.html")
        left_out = _report_runs([run for folder in folders for run in _runs_of(folder)], page)
    say(*left_out, f"report  {page}")
    return 0


def _runs_of(folder: Path) -> list[Path]:
    """Return the runs in a folder that is none itself."""
    return [folder] if RunDir(folder).state() != "new" else runs_inside(folder) or [folder]


def _report_runs(runs: Sequence[Path], page: Path) -> list[str]:
    """Write a page about the finished runs among some; say what is left out. A path that does not exist is refused."""
    finished = [path for path in runs if not path.exists() or RunDir(path).state() == "done"]
    write_report(finished or runs, page)
    names = first_few([str(path) for path in runs if path not in finished], 10)
    return [f"left out  {names}: no finished runs; the command that began a run continues it"] if names else []
