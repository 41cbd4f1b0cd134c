"""``messi demo``: from data to report on the embedded data."""

from pathlib import Path

import tyro

from messi.api import run
from messi.cli.common.output import say
from messi.cli.common.progress import progress
from messi.cli.common.results import print_results
from messi.experiments.common.demo import runs
from messi.reports.page import write_report


def main(arguments: list[str]) -> int:
    """Parse, run and print."""
    return tyro.cli(demo, prog="messi demo", args=arguments)


def demo(*, out: Path = Path("runs/demo"), seed: int = 0) -> int:
    """Train MESSI and ERM on Rotated-Colored MNIST with one environment held out, and compare them.

    Args:
        out: Folder of the runs and the report.
        seed: Seed of both runs.

    """
    finished = []
    for config in runs(seed=seed):
        name = config.algorithm.name
        finished.append(run(config, out=out / f"{name}-seed{seed}", observers=[progress(name)]).path)
    page = out / "report.html"
    write_report(finished, page)
    print_results(finished)
    for path in finished:
        say(f"model   {path / 'model.safetensors'}")
    say(f"report  {page}")
    return 0
