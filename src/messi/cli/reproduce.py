"""``messi reproduce``: the paper's tables and figures, each as a plan of runs that can be interrupted and resumed."""

from pathlib import Path
from typing import Annotated

import tyro

from messi.cli.common.options import FLAT, shown_as
from messi.cli.common.output import print_rows, say
from messi.cli.common.plan_command import chosen_launcher, run_study
from messi.experiments.common.base import Experiment
from messi.studies.common.base import EXPERIMENTS
from messi.sweeps.launchers.common.base import Launcher


def main(arguments: list[str]) -> int:
    """Run the plan of an experiment and write its tables; the experiment and the launcher determine the options."""
    if not arguments or arguments[0] in ("-h", "--help"):
        _print_experiments()
        return 0
    name, *options = arguments
    default: Experiment = EXPERIMENTS.config(name)()
    here = chosen_launcher(options)
    about = (
        f"{default.title}.\n\nThe paper's claim: {default.claim}\n\nCost: {default.cost}. "
        f"With --scale small: {default.reduced or 'the same'}."
    )

    def reproduce(
        *,
        out: Annotated[Path | None, shown_as("FOLDER")] = None,
        dry_run: Annotated[bool, shown_as("")] = False,
        launcher: Annotated[str, tyro.conf.arg(metavar="NAME")] = here.name,  # noqa: ARG001 (read above, shown here)
        experiment: Annotated[Experiment, tyro.conf.arg(name="")] = default,
        environment: Annotated[Launcher, tyro.conf.arg(name="")] = here,
    ) -> int:
        """Run the experiment and write its tables. Repeating the command resumes an interrupted plan.

        Args:
            out: Folder of the runs and tables; by default reproduce/NAME, or reproduce/NAME-small.
            dry_run: Only print the runs and their state.
            launcher: Where the runs are executed: local, ray, slurm, or a file with your own launcher, such as mine.py.
            experiment: Options of the experiment.
            environment: Options of the launcher.

        """
        return run_study(experiment, out or experiment.default_folder, environment, dry_run=dry_run)

    code: int = tyro.cli(reproduce, prog=f"messi reproduce {name}", description=about, args=options, config=FLAT)
    return code


def _print_experiments() -> None:
    print_rows([{"name": name, "what": EXPERIMENTS.config(name).title} for name in EXPERIMENTS.names()])
    say("'messi reproduce NAME --help' describes an experiment; '--dry-run' prints its runs.")
