"""``messi demo``: from data to report on the embedded data."""

from pathlib import Path

import tyro

from messi.algorithms.common.base import AlgorithmConfig
from messi.algorithms.erm import ERM
from messi.algorithms.messi import MESSI
from messi.api import run
from messi.cli.common.output import say
from messi.cli.common.progress import progress
from messi.cli.common.results import print_results
from messi.data.datasets.rotated_colored_mnist import RotatedColoredMNIST
from messi.engine.config import RunConfig, TrainingConfig
from messi.models.encoder import EncoderConfig
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


def runs(*, seed: int = 0) -> list[RunConfig]:
    """Return the two runs, which differ only in the method.

    The balance weight is 0.1 instead of the paper's 0.02: with 0.02, the router can send every input to one expert on
    data as small as this.
    """
    data = RotatedColoredMNIST(environments=10)
    algorithms: tuple[AlgorithmConfig, ...] = (ERM.Config(), MESSI.Config(balance_weight=0.1))
    return [
        RunConfig(
            data=data,
            target=(data.test_domain,),
            algorithm=algorithm,
            encoder=EncoderConfig(backbone="tiny_cnn"),
            training=TrainingConfig(steps=300, evaluate_every=25),
            seed=seed,
        )
        for algorithm in algorithms
    ]
