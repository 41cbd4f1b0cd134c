"""What every command that runs a plan does: dry run, check, launch, report."""

import argparse
import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from messi.cli.common.encoder_options import add_encoder_options, chosen_encoder
from messi.cli.common.options import shown_as
from messi.cli.common.output import Row, print_rows, say
from messi.cli.common.plan_progress import plan_progress
from messi.cli.common.progress import data_progress
from messi.core.config import OPEN
from messi.core.text import last_line
from messi.engine.config import RunConfig, TrainingConfig
from messi.reports.table_formats import without_escapes
from messi.studies.common.base import Study
from messi.studies.common.execute import count_left, execute
from messi.studies.common.hold_out import find_data_set
from messi.studies.common.output import write_results
from messi.studies.common.plan_file import refuse_other_plan
from messi.studies.common.user_study import RunSettings
from messi.sweeps.launchers.common.base import LAUNCHERS, Launcher
from messi.sweeps.plan import Outcome


@dataclass(frozen=True, kw_only=True)
class Execution:
    """Options of every command that runs a plan."""

    out: Annotated[Path | None, shown_as("FOLDER")] = None
    """Folder of the runs and tables; by default one named after the command and what it runs."""
    dry_run: Annotated[bool, shown_as("")] = False
    """Only print the runs and their state."""
    launcher: Annotated[str, tyro.conf.arg(metavar="NAME")]
    """Where the runs are executed: local, ray, slurm, or a file with your own launcher, such as mine.py."""
    environment: Annotated[Launcher, tyro.conf.arg(name="")]


def chosen_execution(arguments: list[str]) -> Execution:
    """Return the default options; the launcher that --launcher names determines which of them exist."""
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--launcher", default="local")
    launcher: Launcher = LAUNCHERS.config(first.parse_known_args(arguments)[0].launcher)()
    return Execution(launcher=launcher.name, environment=launcher)


@dataclass(frozen=True, kw_only=True)
class PlanFile:
    """Options to run a plan that a file describes."""

    plan: Annotated[Path, shown_as("FILE")]
    """The plan.json of an earlier plan; to run it after editing it, delete its line "checksum"."""
    algorithm: Annotated[tuple[Path, ...], shown_as("FILE ...")] = ()
    """Your own files with methods of the plan. They are executed, so name only files that you trust."""


def early_options(arguments: list[str], demo: str) -> argparse.Namespace:
    """Return the options on which others depend: a plan file, and what determines the defaults in --help."""
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--plan")
    first.add_argument("--data", nargs="+", default=[demo])
    first.add_argument("--protocol", default="messi")
    add_encoder_options(first)
    return first.parse_known_args(arguments)[0]


def shown_settings(early: argparse.Namespace) -> RunSettings:
    """Return the settings of runs that --help shows as defaults."""
    encoder = chosen_encoder(early)
    shown = RunConfig(data=find_data_set(early.data[0]), protocol=early.protocol, encoder=encoder).resolved()
    return RunSettings(protocol=shown.protocol, encoder=encoder, training=shown.training)


def only_given(training: TrainingConfig, shown: TrainingConfig) -> TrainingConfig:
    """Return the settings that differ from the defaults in --help; the defaults of a run depend on data and method."""
    same = [name for name in TrainingConfig.open_fields() if getattr(training, name) == getattr(shown, name)]
    return dataclasses.replace(training, **dict.fromkeys(same, OPEN))


def run_study(study: Study, out: Path, execution: Execution) -> int:
    """Do the runs of a study that are not finished and write its results; return the exit code, 1 if a run failed."""
    refuse_other_plan(study, out)
    plan = study.plan(out)
    if left_out := plan.unplanned_note():
        say(left_out)
    if execution.dry_run:
        print_rows([_row(outcome) for outcome in plan.outcomes()])
        say(f"{len(plan.runs)} runs; {study.extent}")
        return 0
    outcomes = execute(study, out, execution.environment, data_progress(), plan_progress)
    if left := count_left(outcomes):
        say(f"{left} of {len(outcomes)} runs are left to their jobs; repeat the command for the results")
        return 0
    written = write_results(study, outcomes, out)
    say(*without_escapes(written.document).split("\n"), *written.left_out)
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
