"""The page of a plan."""

from pathlib import Path

from messi.cli.plan_file import read_plan
from messi.experiments.common.output import write_results
from messi.sweeps.plan import Plan


def report_plan(folder: Path, page: Path) -> list[str]:
    """Write the tables and the page of a plan; return lines about what is left out."""
    experiment = read_plan(folder)
    plan = Plan(folder, experiment.runs())
    written = write_results(experiment, plan.outcomes(), folder, page=page)
    return [line for line in (*written.left_out, plan.strangers_in_words()) if line]
