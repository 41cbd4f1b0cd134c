"""``messi reproduce``: the paper's tables and figures, each as a plan of runs that can be interrupted and resumed."""

from typing import Annotated

import tyro

from messi.cli.common.options import FLAT
from messi.cli.common.output import print_rows, say
from messi.cli.common.plan_command import Execution, chosen_execution, run_study
from messi.experiments.common.base import Experiment
from messi.studies.common.base import EXPERIMENTS


def main(arguments: list[str]) -> int:
    """Run the plan of an experiment and write its tables; the experiment and the launcher determine the options."""
    if not arguments or arguments[0] in ("-h", "--help"):
        _print_experiments()
        return 0
    name, *options = arguments
    default: Experiment = EXPERIMENTS.config(name)()
    usual = chosen_execution(options)
    about = (
        f"{default.title}.\n\nThe paper's claim: {default.claim}\n\nCost: {default.cost}. "
        f"With --scale small: {default.reduced or 'the same'}."
    )

    def reproduce(
        *,
        experiment: Annotated[Experiment, tyro.conf.arg(name="")] = default,
        execution: Annotated[Execution, tyro.conf.arg(name="")] = usual,
    ) -> int:
        """Run the experiment and write its tables. Repeating the command resumes an interrupted plan.

        Args:
            experiment: Options of the experiment.
            execution: How to run it.

        """
        return run_study(experiment, execution.out or experiment.default_folder, execution)

    code: int = tyro.cli(reproduce, prog=f"messi reproduce {name}", description=about, args=options, config=FLAT)
    return code


def _print_experiments() -> None:
    print_rows([{"name": name, "what": EXPERIMENTS.config(name).title} for name in EXPERIMENTS.names()])
    say("'messi reproduce NAME --help' describes an experiment; '--dry-run' prints its runs.")
