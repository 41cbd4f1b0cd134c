"""What every command that runs a plan does: dry run, check, launch, report."""

import argparse
import dataclasses
from pathlib import Path

from messi.cli.common.output import Row, print_rows, say
from messi.cli.common.plan_progress import plan_progress
from messi.cli.common.progress import data_progress
from messi.core.config import OPEN
from messi.core.text import last_line
from messi.engine.config import TrainingConfig
from messi.studies.common.base import Study
from messi.studies.common.execute import count_left, execute
from messi.studies.common.output import write_results
from messi.studies.common.plan_file import refuse_other_plan
from messi.sweeps.launchers.common.base import LAUNCHERS, Launcher
from messi.sweeps.plan import Outcome


def chosen_launcher(arguments: list[str]) -> Launcher:
    """Return the launcher that --launcher names, with its default options; it determines which options exist."""
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--launcher", default="local")
    chosen, _ = first.parse_known_args(arguments)
    launcher: Launcher = LAUNCHERS.config(chosen.launcher)()
    return launcher


def only_given(training: TrainingConfig, shown: TrainingConfig) -> TrainingConfig:
    """Return the settings that differ from the defaults in --help; the defaults of a run depend on data and method."""
    same = [name for name in TrainingConfig.open_fields() if getattr(training, name) == getattr(shown, name)]
    return dataclasses.replace(training, **dict.fromkeys(same, OPEN))


def run_study(study: Study, out: Path, launcher: Launcher, *, dry_run: bool) -> int:
    """Do the runs of a study that are not finished and write its results; return the exit code, 1 if a run failed."""
    refuse_other_plan(study, out)
    plan = study.plan(out)
    if left_out := plan.unplanned_note():
        say(left_out)
    if dry_run:
        print_rows([_row(outcome) for outcome in plan.outcomes()])
        say(f"{len(plan.runs)} runs; {study.extent}")
        return 0
    outcomes = execute(study, out, launcher, data_progress(), plan_progress)
    if left := count_left(outcomes):
        say(f"{left} of {len(outcomes)} runs are left to their jobs; repeat the command for the results")
        return 0
    written = write_results(study, outcomes, out)
    say(*written.document.split("\n"), *written.left_out)
    say(f"tables  {out / 'tables'}")
    say(f"report  {out / 'report.html'}")
    failed = [outcome for outcome in outcomes if outcome.state == "failed"]
    for outcome in failed:
        say(f"failed  {outcome.run.name}: {last_line(outcome.reason)}")
    return 1 if failed else 0


def _row(outcome: Outcome) -> Row:
    config = outcome.run.config.resolved()
    row: Row = dict(outcome.labels)
    return {**row, "backbone": str(config.encoder.backbone), "steps": config.training.steps, "state": outcome.state}
