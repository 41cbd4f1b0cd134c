"""What every command that runs a plan does: dry run, check, launch, report."""

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path

from messi.cli.common.output import Row, print_rows, say
from messi.cli.common.plan_progress import plan_progress
from messi.cli.common.progress import data_progress
from messi.core.config import OPEN
from messi.core.text import last_line
from messi.engine.config import TrainingConfig
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
    launcher.check()
    check_data_and_weights(plan, data_progress())
    write_plan(study, out)
    _launch(study, out, launcher)
    outcomes = study.plan(out).outcomes()
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


def count_left(outcomes: Sequence[Outcome]) -> int:
    """Return the number of runs that a launcher has left to jobs: it returned before they ended."""
    return sum(outcome.state in ("waiting", "started") for outcome in outcomes)


def _launch(study: Study, out: Path, launcher: Launcher) -> None:
    """Do the runs of a study; what is recorded meanwhile may let paused runs continue."""
    tried: set[tuple[str, int | None]] = set()
    while runs := [run for run in _listed(study, out).runs if (run.name, run.until) not in tried]:
        plan = Plan(out, runs)
        with plan_progress(plan, launcher) as on_end:
            for stage in plan.stages():
                launcher.launch(stage, on_end)
        tried |= {(run.name, run.until) for run in runs}


def _listed(study: Study, out: Path) -> Plan:
    """Return the plan as it is now, and list its runs for ``messi status``."""
    plan = study.plan(out)
    plan.write_run_list()
    return plan


def _row(outcome: Outcome) -> Row:
    config = outcome.run.config.resolved()
    row: Row = dict(outcome.labels)
    return {**row, "backbone": str(config.encoder.backbone), "steps": config.training.steps, "state": outcome.state}
