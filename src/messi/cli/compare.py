"""``messi compare``: which method to use on your domains; ``--final`` then trains it on all of them."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from messi.cli.common.options import FLAT, shown_as
from messi.cli.common.output import say
from messi.cli.common.plan_command import (
    Execution,
    PlanFile,
    chosen_execution,
    early_options,
    only_given,
    run_study,
    shown_settings,
)
from messi.cli.common.plan_progress import plan_progress
from messi.cli.common.progress import data_progress
from messi.studies.common.execute import count_left
from messi.studies.common.output import write_results
from messi.studies.common.plan_file import read_edited_plan
from messi.studies.common.results import Results
from messi.studies.common.user_study import RunSettings
from messi.studies.compare import Compare, ComparisonConfig

_DEMO = "rotated_colored_mnist"
"""Determines the defaults that --help shows without --data."""


def main(arguments: list[str]) -> int:
    """Compare methods, from options or from a plan file."""
    early = early_options(arguments, _DEMO)
    return _from_file(arguments) if early.plan else _from_options(arguments, shown_settings(early))


def _from_file(arguments: list[str]) -> int:
    usual = chosen_execution(arguments)

    def compare(
        *,
        file: Annotated[PlanFile, tyro.conf.arg(name="")],
        final: Annotated[bool, shown_as("")] = False,
        execution: Annotated[Execution, tyro.conf.arg(name="")] = usual,
    ) -> int:
        """Run a comparison that a plan.json describes, which may have been edited.

        Args:
            file: The plan.
            final: Train the recommended method on all domains afterwards, into the folder final.
            execution: How to run it.

        """
        study = read_edited_plan(file.plan, Compare, files=file.algorithm)
        return _compare(study, execution.out or file.plan.parent, execution, final=final)

    return tyro.cli(compare, prog="messi compare", args=arguments, config=FLAT)


def _from_options(arguments: list[str], shown: RunSettings) -> int:
    usual = chosen_execution(arguments)
    default = ComparisonConfig(**shown.settings)

    def compare(
        *,
        options: Annotated[ComparisonConfig, tyro.conf.arg(name="")] = default,
        final: Annotated[bool, shown_as("")] = False,
        execution: Annotated[Execution, tyro.conf.arg(name="")] = usual,
    ) -> int:
        """Train every method with every domain held out in turn, rank the methods and recommend one.

        Repeating the command resumes an interrupted comparison. A method or a data set may carry settings, such as
        --methods erm "messi ssi_weight=0.1" erm_swad; the options below apply to all methods. With --plan
        FILE, the comparison is read from a plan.json ('messi compare --plan FILE --help').

        Args:
            options: What to compare.
            final: Train the recommended method on all domains afterwards, into the folder final.
            execution: How to run it.

        """
        training = only_given(options.training, default.training)
        study = dataclasses.replace(options, training=training).plan(data_progress())
        return _compare(study, execution.out or study.default_folder, execution, final=final)

    return tyro.cli(compare, prog="messi compare", args=arguments, config=FLAT)


def _compare(study: Compare, out: Path, execution: Execution, *, final: bool) -> int:
    if final:
        study.require_one_model()
    code = run_study(study, out, execution)
    outcomes = study.plan(out).outcomes()
    if code or execution.dry_run or not final or count_left(outcomes):
        return code
    results = Results(outcomes)
    model = study.final(results, out)
    say(f"final   training {model.run.labels['method']} on all domains")
    if not model.train(execution.environment, plan_progress):
        say("the final model is left to its job; repeat the command for the result")
        return 0
    write_results(study, results.outcomes, out)  # now with the final model
    say(f"expected accuracy on a new domain: {model.expected}", f"model   {model.file}")
    return 0
