"""``messi compare``: which method to use on your domains; ``--final`` then trains it on all of them."""

import argparse
import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from messi.cli.common.options import FLAT, shown_as
from messi.cli.common.output import say
from messi.cli.common.plan_command import chosen_launcher, only_given, run_study
from messi.cli.common.plan_progress import plan_progress
from messi.cli.common.progress import data_progress
from messi.engine.config import RunConfig
from messi.models.encoder import EncoderConfig
from messi.studies.common.execute import count_left
from messi.studies.common.hold_out import find_data_set
from messi.studies.common.output import write_results
from messi.studies.common.plan_file import read_edited_plan
from messi.studies.common.results import Results
from messi.studies.compare import Compare, ComparisonConfig
from messi.sweeps.launchers.common.base import Launcher

_DEMO = "rotated_colored_mnist"
"""Determines the defaults that --help shows without --data."""


def main(arguments: list[str]) -> int:
    """Compare methods, from options or from a plan file."""
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--plan")
    first.add_argument("--data", nargs="+", default=[_DEMO])
    first.add_argument("--protocol", default="messi")
    first.add_argument("--backbone")
    chosen, _ = first.parse_known_args(arguments)
    return _from_file(arguments) if chosen.plan else _from_options(arguments, chosen)


def _from_file(arguments: list[str]) -> int:
    here = chosen_launcher(arguments)

    def compare(
        *,
        plan: Annotated[Path, shown_as("FILE")],
        algorithm: Annotated[tuple[Path, ...], shown_as("FILE ...")] = (),
        out: Annotated[Path | None, shown_as("FOLDER")] = None,
        final: Annotated[bool, shown_as("")] = False,
        dry_run: Annotated[bool, shown_as("")] = False,
        launcher: Annotated[str, tyro.conf.arg(metavar="NAME")] = here.name,  # noqa: ARG001 (read above, shown here)
        environment: Annotated[Launcher, tyro.conf.arg(name="")] = here,
    ) -> int:
        """Run a comparison that a plan.json describes, which may have been edited.

        Args:
            plan: The plan.json of an earlier comparison; to run it after editing it, delete its line "checksum".
            algorithm: Your own files with methods of the plan. They are executed, so name only files that you trust.
            out: Folder of the runs and tables; by default the folder of the plan file.
            final: Train the recommended method on all domains afterwards.
            dry_run: Only print the runs and their state.
            launcher: Where the runs are executed: local, ray, slurm, or a file with your own launcher, such as mine.py.
            environment: Options of the launcher.

        """
        study = read_edited_plan(plan, Compare, files=algorithm)
        return _compare(study, out or plan.parent, environment, final=final, dry_run=dry_run)

    return tyro.cli(compare, prog="messi compare", args=arguments, config=FLAT)


def _from_options(arguments: list[str], chosen: argparse.Namespace) -> int:
    here = chosen_launcher(arguments)
    encoder = EncoderConfig(backbone=chosen.backbone)
    stated = RunConfig(data=find_data_set(chosen.data[0]), protocol=chosen.protocol, encoder=encoder).resolved()
    default = ComparisonConfig(protocol=stated.protocol, encoder=encoder, training=stated.training)

    def compare(
        *,
        options: Annotated[ComparisonConfig, tyro.conf.arg(name="")] = default,
        out: Annotated[Path | None, shown_as("FOLDER")] = None,
        final: Annotated[bool, shown_as("")] = False,
        dry_run: Annotated[bool, shown_as("")] = False,
        launcher: Annotated[str, tyro.conf.arg(metavar="NAME")] = here.name,  # noqa: ARG001 (read above, shown here)
        environment: Annotated[Launcher, tyro.conf.arg(name="")] = here,
    ) -> int:
        """Train every method with every domain held out in turn, rank the methods and recommend one.

        Repeating the command resumes an interrupted comparison. A method or a data set may carry settings, such as
        --methods erm "messi ssi_weight=0.1" "erm averaging=swad"; the options below apply to all methods. With --plan
        FILE, the comparison is read from a plan.json ('messi compare --plan FILE --help').

        Args:
            options: What to compare.
            out: Folder of the runs and tables; by default compare/NAME.
            final: Train the recommended method on all domains afterwards, into the folder final.
            dry_run: Only print the runs and their state.
            launcher: Where the runs are executed: local, ray, slurm, or a file with your own launcher, such as mine.py.
            environment: Options of the launcher.

        """
        training = only_given(options.training, default.training)
        study = dataclasses.replace(options, training=training).plan(data_progress())
        return _compare(study, out or study.default_folder, environment, final=final, dry_run=dry_run)

    return tyro.cli(compare, prog="messi compare", args=arguments, config=FLAT)


def _compare(study: Compare, out: Path, launcher: Launcher, *, final: bool, dry_run: bool) -> int:
    if final:
        study.require_one_model()
    code = run_study(study, out, launcher, dry_run=dry_run)
    outcomes = study.plan(out).outcomes()
    if code or dry_run or not final or count_left(outcomes):
        return code
    results = Results(outcomes)
    model = study.final(results, out)
    say(f"final   training {model.run.labels['method']} on all domains")
    if not model.train(launcher, plan_progress):
        say("the final model is left to its job; repeat the command for the result")
        return 0
    write_results(study, results.outcomes, out)  # now with the final model
    say(f"expected accuracy on a new domain: {model.expected}", f"model   {model.file}")
    return 0
