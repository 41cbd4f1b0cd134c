"""``messi average``: one model from several runs."""

from pathlib import Path
from typing import Annotated

import tyro

from messi.api import average as average_runs
from messi.cli.common.options import shown_as
from messi.cli.common.output import Row, print_rows, say
from messi.core.run_documents import AverageChoice
from messi.core.rundir import RunDir
from messi.reports.averaged_runs import averaged_rows
from messi.reports.runs import read_run


def main(arguments: list[str]) -> int:
    """Parse, average and print."""
    return tyro.cli(average, prog="messi average", args=arguments)


def average(
    runs: tyro.conf.Positional[Annotated[tuple[Path, ...], shown_as("RUN ...")]],
    /,
    *,
    choice: AverageChoice = "uniform",
    out: Annotated[Path | None, shown_as("FOLDER")] = None,
    algorithm: Annotated[Path | None, shown_as("FILE")] = None,
    device: Annotated[str | None, shown_as("DEVICE")] = None,
) -> int:
    """Average the weights of finished runs into one model, and test it once on the target (DiWA).

    The runs must have the same data, source and target domains, method and network, must have begun with the same
    weights ('messi train --start', or the same --seed) and must validate on the same examples (--split-seed). The
    result is a run folder, for 'messi evaluate', 'predict', 'report' and 'verify'. Repeating the command starts an
    interrupted average again.

    Args:
        runs: Run folders.
        choice: Average all runs, or add them by validation accuracy, best first, unless that of the average falls.
        out: The folder of the average; by default in runs/.
        algorithm: The file of your own method. It is executed, so name only files that you trust.
        device: Such as cpu or cuda:0; by default a GPU if there is one.

    """
    result = average_runs(runs, choice=choice, out=out, device=device, algorithm=algorithm)
    if not result.fresh:
        say(f"This average is already finished; nothing was done: {result.path}")
    rows: list[Row] = [dict(row) for row in averaged_rows(read_run(result.path))]
    print_rows(rows)
    folder = RunDir(result.path)
    say(f"model   {folder.model}", f"report  {folder.report}")
    return 0
