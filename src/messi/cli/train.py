"""``messi train``: from options to a finished run."""

import argparse
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from messi.algorithms._base import ALGORITHMS
from messi.cli.progress import progress
from messi.cli.results import print_results
from messi.core.errors import MessiError
from messi.core.rundir import RunDir
from messi.data.datasets._base import DATASETS, DataConfig
from messi.data.datasets.folder import Folder
from messi.engine.config import RunConfig
from messi.engine.run import run
from messi.reports.page import write_report


def main(arguments: list[str]) -> int:
    """Train, print the result and write the report."""
    config, out, device = parse(arguments)
    result = run(config, out=out, device=device, observers=[progress(config.algorithm.name)])
    console = Console(soft_wrap=True, highlight=False)
    if not result.fresh:
        console.print(f"This run is finished already; nothing was done: {result.path}", markup=False)
    folder = RunDir(result.path)
    if not folder.report.exists():
        write_report([result.path], folder.report)
    print_results([result.path])
    console.print(f"model   {folder.model}\nreport  {folder.report}", markup=False)
    return 0


def parse(arguments: list[str]) -> tuple[RunConfig, Path | None, str | None]:
    """Turn options into a config; which options exist depends on the algorithm and the data."""
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--algorithm", default="messi")
    first.add_argument("--data", default="rotated_colored_mnist")
    chosen, _ = first.parse_known_args(arguments)
    default = RunConfig(data=find_data(chosen.data), algorithm=ALGORITHMS.config(chosen.algorithm)())

    def train(
        *,
        data: str,  # noqa: ARG001 (read above, shown here)
        algorithm: str = chosen.algorithm,  # noqa: ARG001
        out: Path | None = None,
        device: str | None = None,
        config: Annotated[RunConfig, tyro.conf.arg(name="")] = default,
    ) -> tuple[RunConfig, Path | None, str | None]:
        """Train on all domains but the target, select by source validation, test on the target once.

        The same command again goes on where a stopped run was. The data and algorithm options are those of the
        chosen --data and --algorithm: add --help after these to see theirs.

        Args:
            data: A folder domain/class/image, or a data set by name ('messi list datasets').
            algorithm: The method ('messi list algorithms').
            out: The run folder; by default one under runs/ that is named by the config.
            device: Such as cpu or cuda:0; by default a GPU if there is one.
            config: All other settings.

        """
        return config, out, device

    flat = (tyro.conf.OmitArgPrefixes, tyro.conf.SuppressFixed)
    return tyro.cli(train, prog="messi train", args=arguments, config=flat)


def find_data(name: str) -> DataConfig:
    """Return the data set of that name, or the folder at that path."""
    names = [known for known in DATASETS.names() if known != "folder"]
    if name in names:
        config: DataConfig = DATASETS.config(name)()
        return config
    if not Path(name).exists():
        raise MessiError(f"There is no folder {name} and no data set of that name; there are: {', '.join(names)}.")
    return Folder(path=name)
