"""``messi report``: one page from finished runs, or from a plan as far as it is."""

import json
from pathlib import Path

import tyro
from rich.console import Console

from messi.cli.reproduce import PLAN
from messi.core.errors import MessiError
from messi.experiments._base import Experiment
from messi.experiments._output import write_results
from messi.reports.page import write_report
from messi.sweeps.plan import Plan


def main(arguments: list[str]) -> int:
    """Parse and write the page."""
    return tyro.cli(report, prog="messi report", args=arguments)


def report(runs: tyro.conf.Positional[tuple[Path, ...]], /, *, out: Path = Path("report.html")) -> int:
    """Build one self-contained page that compares finished runs, or that of a plan.

    Args:
        runs: Run folders, or the folder of one plan of 'messi reproduce', whose tables are then written anew, too.
        out: The page to write; that of a plan lies in its folder.

    """
    console = Console(soft_wrap=True, highlight=False, markup=False)
    plans = [folder for folder in runs if (folder / PLAN).exists()]
    if plans and len(runs) > 1:
        raise MessiError(f"{plans[0]} is a plan; a page shows one plan or some runs, so name it alone.")
    if plans:
        out = plans[0] / "report.html"
        experiment: Experiment = Experiment.from_dict(json.loads((plans[0] / PLAN).read_text(encoding="utf-8")))
        plan = Plan(plans[0], experiment.runs())
        write_results(experiment, plan.outcomes(), plans[0])
        if strangers := plan.strangers():
            console.print(
                f"left out  {strangers[0]}"
                + (f" and {len(strangers) - 1} more" if len(strangers) > 1 else "")
                + f" in {plans[0] / 'runs'}: not of the plan that plan.json tells of"
            )
    else:
        write_report(runs, out)
    console.print(f"report  {out}")
    return 0
