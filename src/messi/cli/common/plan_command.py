"""What every command that runs a plan does: dry run, check, launch, report."""

import argparse
from pathlib import Path

from messi.cli.common.output import Row, print_rows, say
from messi.cli.common.plan_progress import plan_progress
from messi.cli.common.progress import data_progress
from messi.studies.common.base import Study
from messi.studies.common.output import write_results
from messi.studies.common.plan_file import refuse_other_plan, write_plan
from messi.sweeps.check import check_data_and_weights
from messi.sweeps.launchers.common.base import LAUNCHERS, Launcher
from messi.sweeps.plan import Outcome, Plan


def chosen_launcher(arguments: list[str]) -> Launcher:
    """Return the launcher that --launcher names, with its default options; it determines which options exist."""
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--launcher", default="local")
    chosen, _ = first.parse_known_args(arguments)
    launcher: Launcher = LAUNCHERS.config(chosen.launcher)()
    return launcher


def run_study(study: Study, out: Path, launcher: Launcher, *, dry_run: bool) -> int:
    """Do the runs of a study that are not finished and write its results; return the exit code, 1 if a run failed."""
    refuse_other_plan(study, out)
    plan = Plan(out, study.runs())
    if left_out := plan.unplanned_note():
        say(left_out)
    if dry_run:
        print_rows([_row(outcome) for outcome in plan.outcomes()])
        say(f"{len(plan.runs)} runs; {study.extent}")
        return 0
    check_data_and_weights(plan, data_progress())
    write_plan(study, out)
    plan.write_run_list()
    with plan_progress(plan, launcher) as on_end:
        for stage in plan.stages():
            launcher.launch(stage, on_end)
    outcomes = plan.outcomes()
    written = write_results(study, outcomes, out)
    say(*written.document.split("\n"), *written.left_out)
    say(f"tables  {out / 'tables'}")
    say(f"report  {out / 'report.html'}")
    failed = [outcome for outcome in outcomes if outcome.state == "failed"]
    for outcome in failed:
        say(f"failed  {outcome.run.name}: {outcome.reason.splitlines()[-1]}")
    return 1 if failed else 0


def _row(outcome: Outcome) -> Row:
    config = outcome.run.config.resolved()
    row: Row = dict(outcome.labels)
    return {**row, "backbone": str(config.encoder.backbone), "steps": config.training.steps, "state": outcome.state}
