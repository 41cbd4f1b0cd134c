"""``messi tune``: search the hyper-parameters of methods on your domains."""

import dataclasses
from typing import Annotated

import tyro

from messi.cli.common.options import FLAT
from messi.cli.common.plan_command import (
    Execution,
    PlanFile,
    chosen_execution,
    early_options,
    only_given,
    run_study,
    shown_settings,
)
from messi.cli.common.progress import data_progress
from messi.studies.common.plan_file import read_edited_plan
from messi.studies.common.user_study import RunSettings
from messi.studies.tune import SearchConfig, Tune

_DEMO = "rotated_mnist"
"""Determines the defaults that --help shows without --data."""


def main(arguments: list[str]) -> int:
    """Search, from options or from a plan file."""
    early = early_options(arguments, _DEMO)
    return _from_file(arguments) if early.plan else _from_options(arguments, shown_settings(early))


def _from_file(arguments: list[str]) -> int:
    usual = chosen_execution(arguments)

    def tune(
        *,
        file: Annotated[PlanFile, tyro.conf.arg(name="")],
        execution: Annotated[Execution, tyro.conf.arg(name="")] = usual,
    ) -> int:
        """Run a search that a plan.json describes, which may have been edited.

        Args:
            file: The plan.
            execution: How to run it.

        """
        study = read_edited_plan(file.plan, Tune, files=file.algorithm)
        return run_study(study, execution.out or file.plan.parent, execution)

    return tyro.cli(tune, prog="messi tune", args=arguments, config=FLAT)


def _from_options(arguments: list[str], shown: RunSettings) -> int:
    usual = chosen_execution(arguments)
    default = SearchConfig(**shown.settings)

    def tune(
        *,
        options: Annotated[SearchConfig, tyro.conf.arg(name="")] = default,
        execution: Annotated[Execution, tyro.conf.arg(name="")] = usual,
    ) -> int:
        """Search the hyper-parameters of methods at random, with every domain held out in turn.

        Every draw of a field depends on --search-seed, the field and the number of the draw alone: methods share the
        draws of shared fields, and more draws or fields keep the others. 'messi list algorithms' and 'messi list
        protocols' print the ranges. Repeating the command resumes an interrupted search. With --plan FILE, the search
        is read from a plan.json ('messi tune --plan FILE --help').

        Args:
            options: What to search; the settings of training are those of draw 0.
            execution: How to run it.

        """
        training = only_given(options.training, default.training)
        study = dataclasses.replace(options, training=training).study(data_progress())
        return run_study(study, execution.out or study.default_folder, execution)

    return tyro.cli(tune, prog="messi tune", args=arguments, config=FLAT)
