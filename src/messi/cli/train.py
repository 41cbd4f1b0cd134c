"""``messi train``: from options to finished runs."""

import argparse
import functools
from pathlib import Path
from typing import Annotated

import tyro

from messi.algorithms.common.base import ALGORITHMS
from messi.api import run
from messi.cli.common.output import say
from messi.cli.common.progress import data_progress, progress
from messi.cli.common.results import print_held_out, print_results
from messi.cli.common.sources import called, find_data
from messi.core.registry import short_name
from messi.core.rundir import RunDir, folder_name
from messi.data.datasets.common.base import ImageData
from messi.data.examples import Examples
from messi.data.summary import summary
from messi.data.watcher import Watcher
from messi.engine.build import pick_device
from messi.engine.config import RunConfig
from messi.engine.leave_one_out import runs_of
from messi.engine.run import RunResult
from messi.reports.page import write_report


def main(arguments: list[str]) -> int:
    """Train, print the results and write the report."""
    config, out, device, capture = parse(arguments)
    watcher = data_progress()
    load = functools.cache(functools.partial(_load, config, watcher))
    # A wrong name of a domain is told before a single image is decoded.
    known = config.data.listing(watcher) if isinstance(config.data, ImageData) else load()
    configs = runs_of(config, known.domain_names)
    results = []
    for one in configs:
        name = "+".join(one.target) or "all"
        place = out / folder_name(name) if out and len(configs) > 1 else out
        method = short_name(one.algorithm.name)
        title = method if len(configs) == 1 else f"{method} -> {name}"
        shown = progress(title, functools.partial(_about, one, device))
        results.append(run(one, out=place, device=device, capture=capture, observers=[shown], load=load))
    _show(config, results, out)
    return 0


def _about(config: RunConfig, device: str | None) -> str:
    target = "+".join(config.target) or "none"
    return f"data {called(config.data)}, target {target}, device {pick_device(device)}"


def _load(config: RunConfig, watcher: Watcher) -> Examples:
    """Load the data and say what there is of it and what the network sees of it."""
    examples = config.data.load(watcher)
    spec = config.resolved().encoder.input_spec(examples.input_shape)
    say(f"data    {summary(examples, spec)}")
    return examples


def _show(config: RunConfig, results: list[RunResult], out: Path | None) -> None:
    for result in results:
        if not result.fresh:
            say(f"This run is finished already; nothing was done: {result.path}")
    paths = [result.path for result in results]
    (print_held_out if len(paths) > 1 else print_results)(paths)
    for path in paths:
        say(f"model   {RunDir(path).model}")
    page = RunDir(paths[0]).report
    if len(paths) > 1:
        method = short_name(config.algorithm.name)
        page = (out or Path("runs")) / f"{called(config.data)}_{method}_seed{config.seed}.html"
        write_report(paths, page)
    say(f"report  {page}")


def parse(arguments: list[str]) -> tuple[RunConfig, Path | None, str | None, bool]:
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
        capture: bool = True,
        config: Annotated[RunConfig, tyro.conf.arg(name="")] = default,
    ) -> tuple[RunConfig, Path | None, str | None, bool]:
        """Train on all domains but the target, select by source validation, test on the target once.

        Without --target every domain is held out in turn, one run each; '--target none' trains on all. The same
        command again goes on where a stopped run was. The data and algorithm options are those of the chosen --data
        and --algorithm: add --help after these to see theirs.

        Args:
            data: A folder domain/class/image, a table (.csv, .tsv, .parquet), arrays (.npz), a WILDS folder, or a
                data set by name ('messi data list').
            algorithm: The method ('messi list algorithms'), or a file of your own with one, such as mine.py.
            out: The run folder, or the folder of several runs; by default named by the config, under runs/.
            device: Such as cpu or cuda:0; by default a GPU if there is one.
            capture: On a GPU, record the training step once and replay it: the same result, sooner.
            config: All other settings.

        """
        return config, out, device, capture

    flat = (tyro.conf.OmitArgPrefixes, tyro.conf.SuppressFixed)
    return tyro.cli(train, prog="messi train", args=arguments, config=flat)
