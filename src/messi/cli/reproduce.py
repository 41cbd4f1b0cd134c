"""``messi reproduce``: the paper's tables and figures, each as a plan of runs that can be interrupted and resumed."""

import argparse
import time
from collections import Counter
from pathlib import Path
from typing import Annotated

import tyro

from messi.cli.common.options import FLAT, shown_as
from messi.cli.common.output import Row, print_rows, say
from messi.cli.common.progress import data_progress
from messi.experiments.common.base import EXPERIMENTS, Experiment
from messi.experiments.common.output import default_folder, write_results
from messi.experiments.common.plan_file import refuse_other_plan, write_plan
from messi.sweeps.check import check_data_and_weights
from messi.sweeps.launchers.common.base import LAUNCHERS, Launcher
from messi.sweeps.plan import Outcome, Plan


def main(arguments: list[str]) -> int:
    """Run the plan of an experiment and write its tables; the experiment and the launcher determine the options."""
    if not arguments or arguments[0] in ("-h", "--help"):
        _print_experiments()
        return 0
    name, *options = arguments
    default: Experiment = EXPERIMENTS.config(name)()
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--launcher", default="local")
    chosen, _ = first.parse_known_args(options)
    here: Launcher = LAUNCHERS.config(chosen.launcher)()
    about = (
        f"{default.title}.\n\nThe paper's claim: {default.claim}\n\nCost: {default.cost}. "
        f"With --scale small: {default.reduced or 'the same'}."
    )

    def reproduce(
        *,
        out: Annotated[Path | None, shown_as("FOLDER")] = None,
        dry_run: Annotated[bool, shown_as("")] = False,
        launcher: Annotated[str, tyro.conf.arg(metavar="NAME")] = chosen.launcher,  # noqa: ARG001 (read above, shown here)
        experiment: Annotated[Experiment, tyro.conf.arg(name="")] = default,
        environment: Annotated[Launcher, tyro.conf.arg(name="")] = here,
    ) -> int:
        """Run the experiment and write its tables. Repeating the command resumes an interrupted plan.

        Args:
            out: Folder of the runs and tables; by default reproduce/NAME, or reproduce/NAME-small.
            dry_run: Only print the runs and their state.
            launcher: Where the runs are executed: local, or a file with your own launcher, such as mine.py.
            experiment: Options of the experiment.
            environment: Options of the launcher.

        """
        return _reproduce(experiment, out or default_folder(experiment), environment, dry_run=dry_run)

    code: int = tyro.cli(reproduce, prog=f"messi reproduce {name}", description=about, args=options, config=FLAT)
    return code


def _reproduce(experiment: Experiment, out: Path, launcher: Launcher, *, dry_run: bool) -> int:
    refuse_other_plan(experiment, out)
    plan = Plan(out, experiment.runs())
    if left_out := plan.unplanned_note():
        say(left_out)
    if dry_run:
        print_rows([_row(outcome) for outcome in plan.outcomes()])
        reduced = experiment.small and experiment.reduced
        about = f"reduced: {experiment.reduced}" if reduced else f"cost: {experiment.cost}"
        say(f"{len(plan.runs)} runs; {about}")
        return 0
    check_data_and_weights(plan, data_progress())
    write_plan(experiment, out)
    progress = PlanProgress(plan, launcher)
    for stage in plan.stages():
        launcher.launch(stage, progress)
    outcomes = plan.outcomes()
    written = write_results(experiment, outcomes, out)
    say(*written.document.split("\n"), *written.left_out)
    say(f"tables  {out / 'tables'}")
    say(f"report  {out / 'report.html'}")
    failed = [outcome for outcome in outcomes if outcome.state == "failed"]
    for outcome in failed:
        say(f"failed  {outcome.run.name}: {outcome.reason.splitlines()[-1]}")
    return 1 if failed else 0


class PlanProgress:
    """Prints a line before the first run, and one after each run."""

    def __init__(self, plan: Plan, launcher: Launcher) -> None:
        states = Counter(outcome.state for outcome in plan.outcomes())
        self._total, self._done, self._start = len(plan.runs), states["done"], time.monotonic()
        self._first = self._done
        if self._done:
            say(f"{self._done} of {self._total} runs are already finished")
        if left := self._total - self._done:
            say(f"runs to do: {left}, {launcher.describe(left)}; each is reported when it finishes")

    def __call__(self, outcome: Outcome) -> None:
        """Print the result of a run and the estimated time for the others."""
        self._done += 1
        pace = (time.monotonic() - self._start) / (self._done - self._first)
        left = pace * (self._total - self._done)
        labels = "  ".join(f"{key} {value}" for key, value in outcome.labels.items())
        end = _accuracies(outcome) if outcome.state == "done" else f"failed: {outcome.reason.splitlines()[-1]}"
        say(f"[{self._done}/{self._total}, {left / 60:.1f} min left] {labels}  {end}")


def _accuracies(outcome: Outcome) -> str:
    return "  ".join(f"{domain} {accuracy:.1%}" for domain, accuracy in outcome.result().target.items())


def _row(outcome: Outcome) -> Row:
    config = outcome.run.config.resolved()
    row: Row = dict(outcome.labels)
    return {**row, "backbone": str(config.encoder.backbone), "steps": config.training.steps, "state": outcome.state}


def _print_experiments() -> None:
    print_rows([{"name": name, "what": EXPERIMENTS.config(name).title} for name in EXPERIMENTS.names()])
    say("'messi reproduce NAME --help' describes an experiment; '--dry-run' prints its runs.")
