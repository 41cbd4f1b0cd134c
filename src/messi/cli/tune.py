"""``messi tune``: search the hyper-parameters of methods on your domains."""

import argparse
import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from messi.cli.common.options import FLAT, shown_as
from messi.cli.common.plan_command import chosen_launcher, only_given, run_study
from messi.cli.common.progress import data_progress
from messi.engine.config import RunConfig
from messi.models.encoder import EncoderConfig
from messi.studies.common.hold_out import find_data_set
from messi.studies.common.plan_file import read_edited_plan
from messi.studies.tune import SearchConfig, Tune
from messi.sweeps.launchers.common.base import Launcher

_DEMO = "rotated_mnist"
"""Determines the defaults that --help shows without --data."""


def main(arguments: list[str]) -> int:
    """Search, from options or from a plan file."""
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--plan")
    first.add_argument("--data", default=_DEMO)
    first.add_argument("--protocol", default="messi")
    first.add_argument("--backbone")
    chosen, _ = first.parse_known_args(arguments)
    return _from_file(arguments) if chosen.plan else _from_options(arguments, chosen)


def _from_file(arguments: list[str]) -> int:
    here = chosen_launcher(arguments)

    def tune(
        *,
        plan: Annotated[Path, shown_as("FILE")],
        algorithm: Annotated[tuple[Path, ...], shown_as("FILE ...")] = (),
        out: Annotated[Path | None, shown_as("FOLDER")] = None,
        dry_run: Annotated[bool, shown_as("")] = False,
        launcher: Annotated[str, tyro.conf.arg(metavar="NAME")] = here.name,  # noqa: ARG001 (read above, shown here)
        environment: Annotated[Launcher, tyro.conf.arg(name="")] = here,
    ) -> int:
        """Run a search that a plan.json describes, which may have been edited.

        Args:
            plan: The plan.json of an earlier search; to run it after editing it, delete its line "checksum".
            algorithm: Your own files with methods of the plan. They are executed, so name only files that you trust.
            out: Folder of the runs and tables; by default the folder of the plan file.
            dry_run: Only print the runs and their state.
            launcher: Where the runs are executed: local, ray, slurm, or a file with your own launcher, such as mine.py.
            environment: Options of the launcher.

        """
        study = read_edited_plan(plan, Tune, files=algorithm)
        return run_study(study, out or plan.parent, environment, dry_run=dry_run)

    return tyro.cli(tune, prog="messi tune", args=arguments, config=FLAT)


def _from_options(arguments: list[str], chosen: argparse.Namespace) -> int:
    here = chosen_launcher(arguments)
    encoder = EncoderConfig(backbone=chosen.backbone)
    stated = RunConfig(data=find_data_set(chosen.data), protocol=chosen.protocol, encoder=encoder).resolved()
    default = SearchConfig(protocol=stated.protocol, encoder=encoder, training=stated.training)

    def tune(
        *,
        options: Annotated[SearchConfig, tyro.conf.arg(name="")] = default,
        out: Annotated[Path | None, shown_as("FOLDER")] = None,
        dry_run: Annotated[bool, shown_as("")] = False,
        launcher: Annotated[str, tyro.conf.arg(metavar="NAME")] = here.name,  # noqa: ARG001 (read above, shown here)
        environment: Annotated[Launcher, tyro.conf.arg(name="")] = here,
    ) -> int:
        """Search the hyper-parameters of methods at random, with every domain held out in turn.

        Every draw of a field depends on --search-seed, the field and the number of the draw alone: methods share the
        draws of shared fields, and more draws or fields keep the others. 'messi list algorithms' and 'messi list
        protocols' print the ranges. Repeating the command resumes an interrupted search.

        Args:
            options: What to search; the settings of training are those of draw 0.
            out: Folder of the runs and tables; by default tune/NAME.
            dry_run: Only print the runs and their state.
            launcher: Where the runs are executed: local, ray, slurm, or a file with your own launcher, such as mine.py.
            environment: Options of the launcher.

        """
        training = only_given(options.training, default.training)
        study = dataclasses.replace(options, training=training).study(data_progress())
        return run_study(study, out or study.default_folder, environment, dry_run=dry_run)

    return tyro.cli(tune, prog="messi tune", args=arguments, config=FLAT)
