"""``messi reproduce``: the paper's tables and figures, each as a plan of runs that can be stopped and goes on."""

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import torch
import tyro

from messi.cli.output import Row, print_rows, say
from messi.cli.plan_file import refuse_other_plan, write_plan
from messi.cli.progress import data_progress
from messi.experiments.common.base import EXPERIMENTS, Experiment
from messi.experiments.common.output import default_folder, write_results
from messi.sweeps.check import check_needs, check_workers
from messi.sweeps.launch import launch
from messi.sweeps.plan import Outcome, Plan


def main(arguments: list[str]) -> int:
    """Find the experiment, do its runs and write its tables."""
    if not arguments or arguments[0] in ("-h", "--help"):
        _print_experiments()
        return 0
    name, *options = arguments
    default = EXPERIMENTS.config(name)()
    about = (
        f"{default.title}.\n\nThe paper's claim: {default.claim}\n\nCost: {default.cost}. "
        f"With --scale small: {default.reduced or 'the same'}."
    )

    def reproduce(
        *,
        out: Path | None = None,
        jobs: int | None = None,
        devices: tuple[str, ...] = (),
        dry_run: bool = False,
        experiment: Annotated[Experiment, tyro.conf.arg(name="")] = default,
    ) -> int:
        """Do the runs and write the tables.

        Args:
            out: Where runs and tables go; by default reproduce/NAME, or reproduce/NAME-small. The same command again
                goes on where it was stopped.
            jobs: How many runs at a time; by default one for every device.
            devices: Such as cuda:0 cuda:1 or cpu; by default all GPUs, or the CPU.
            dry_run: Only print what would be run, and what is done of it.
            experiment: Its own options.

        """
        chosen = devices or tuple(f"cuda:{n}" for n in range(torch.cuda.device_count())) or ("cpu",)
        number = len(chosen) if jobs is None else jobs
        check_workers(number, chosen)
        return _reproduce(experiment, out or default_folder(experiment), number, chosen, dry_run=dry_run)

    flat = (tyro.conf.OmitArgPrefixes, tyro.conf.SuppressFixed)
    code: int = tyro.cli(reproduce, prog=f"messi reproduce {name}", description=about, args=options, config=flat)
    return code


def _reproduce(experiment: Experiment, out: Path, jobs: int, devices: Sequence[str], *, dry_run: bool) -> int:
    refuse_other_plan(experiment, out)
    plan = Plan(out, experiment.runs())
    if left_out := plan.strangers_in_words():
        say(left_out)
    if dry_run:
        print_rows([_row(outcome) for outcome in plan.outcomes()])
        reduced = experiment.small and experiment.reduced
        about = f"reduced: {experiment.reduced}" if reduced else f"cost: {experiment.cost}"
        say(f"{len(plan.runs)} runs; {about}")
        return 0
    check_needs(plan, data_progress())
    write_plan(experiment, out)
    outcomes = launch(plan, jobs=jobs, devices=devices, told=Lines(plan, jobs, devices))
    written = write_results(experiment, outcomes, out)
    say(*written.document.split("\n"), *written.left_out)
    say(f"tables  {out / 'tables'}")
    say(f"report  {out / 'report.html'}")
    failed = [outcome for outcome in outcomes if outcome.state == "failed"]
    for outcome in failed:
        say(f"failed  {outcome.run.name}: {outcome.reason.splitlines()[-1]}")
    return 1 if failed else 0


class Lines:
    """Prints a line when the runs begin, and one for every run that ends."""

    def __init__(self, plan: Plan, jobs: int, devices: Sequence[str]) -> None:
        states = Counter(outcome.state for outcome in plan.outcomes())
        self._total, self._done, self._start = len(plan.runs), states["done"], time.monotonic()
        self._first = self._done
        if self._done:
            say(f"{self._done} of {self._total} runs are done already")
        if left := self._total - self._done:
            where = f"{min(jobs, left)} at a time on {', '.join(devices)}"
            say(f"runs to do: {left}, {where}; each is told when it ends")

    def __call__(self, outcome: Outcome) -> None:
        """Say how a run ended and how long the rest may take."""
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
    """Print the experiments by name, with what each shows."""
    print_rows([{"name": name, "what": EXPERIMENTS.config(name).title} for name in EXPERIMENTS.names()])
    say("'messi reproduce NAME --help' describes one, '--dry-run' prints its runs.")
