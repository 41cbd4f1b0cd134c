"""``messi report``: one page from finished runs, or from a plan as far as it is."""

from collections.abc import Sequence
from pathlib import Path

import tyro
from rich.console import Console

from messi.cli.plan_file import PLAN, read_plan
from messi.core.errors import MessiError
from messi.core.rundir import RunDir
from messi.data.watcher import some
from messi.experiments._output import write_results
from messi.reports.page import write_report
from messi.sweeps.plan import Plan


def main(arguments: list[str]) -> int:
    """Parse and write the page."""
    return tyro.cli(report, prog="messi report", args=arguments)


def report(runs: tyro.conf.Positional[tuple[Path, ...]], /, *, out: Path | None = None) -> int:
    """Build one self-contained page that compares finished runs, or that of a plan.

    Args:
        runs: Run folders, of which unfinished ones are left out, or the folder of one plan of 'messi reproduce', whose
            tables are then written anew, too.
        out: The page to write; by default report.html, that of a plan in its folder.

    """
    console = Console(soft_wrap=True, highlight=False, markup=False)
    plans = [folder for folder in runs if (folder / PLAN).exists()]
    if plans and len(runs) > 1:
        raise MessiError(f"{plans[0]} is a plan; a page shows one plan or some runs, so name it alone.")
    if plans:
        page = out or plans[0] / "report.html"
        left_out = _report_plan(plans[0], page)
    else:
        page = out or Path("report.html")
        left_out = _report_runs(runs, page)
    if left_out:
        console.print(left_out)
    console.print(f"report  {page}")
    return 0


def _report_plan(folder: Path, page: Path) -> str:
    """Write the tables and the page of a plan; say what is left out."""
    experiment = read_plan(folder)
    plan = Plan(folder, experiment.runs())
    written = write_results(experiment, plan.outcomes(), folder, page=page)
    return "\n".join(filter(None, (*written.left_out, plan.strangers_in_words())))


def _report_runs(runs: Sequence[Path], page: Path) -> str:
    """Write a page about the finished runs among some; say what is left out. A path that does not exist is refused."""
    finished = [path for path in runs if not path.exists() or RunDir(path).state() == "done"]
    write_report(finished or runs, page)
    names = some([str(path) for path in runs if path not in finished], 10)
    return f"left out  {names}: no finished runs; the command that began a run continues it" if names else ""
