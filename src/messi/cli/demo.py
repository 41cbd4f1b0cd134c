"""``messi demo``: from data to a comparison with a report, on the embedded data."""

import os
from pathlib import Path
from typing import Annotated

import tyro

from messi.cli.common.options import shown_as
from messi.cli.common.output import say
from messi.cli.common.plan_command import Execution, run_study
from messi.core.hardware import local_devices
from messi.core.rundir import RunDir
from messi.data.datasets.rotated_colored_mnist import RotatedColoredMNIST
from messi.engine.config import TrainingConfig
from messi.models.encoder import EncoderConfig
from messi.studies.common.base import Repetitions
from messi.studies.common.hold_out import Task
from messi.studies.compare import Compare
from messi.sweeps.launchers.local import Local

METHODS = ("erm", "erm_swad", "messi_swad")
"""The baseline, the default for such a network, and the default for pretrained ones."""


def main(arguments: list[str]) -> int:
    """Parse, run and print."""
    return tyro.cli(demo, prog="messi demo", args=arguments)


def demo(*, out: Annotated[Path, shown_as("FOLDER")] = Path("runs/demo"), seeds: Repetitions = 3) -> int:
    """Compare the recipes erm, erm_swad and messi_swad on Rotated-Colored MNIST with one environment held out.

    Args:
        out: Folder of the runs and the report.
        seeds: Number of repetitions.

    """
    study = comparison(seeds)
    code = run_study(study, out, Execution(launcher="local", environment=Local(jobs=jobs())))
    say(f"models  {out / 'runs' / '*' / RunDir(out).model.name}")
    return code


def comparison(seeds: int = 3) -> Compare:
    """Return the runs of the demo."""
    data = RotatedColoredMNIST(environments=10)
    return Compare(
        tasks=(Task(data=data, hold_out=((data.test_domain,),), sealed=True),),
        methods=METHODS,
        encoder=EncoderConfig(backbone="tiny_cnn"),
        training=TrainingConfig(steps=300, evaluate_every=15),
        seeds=seeds,
    )


def jobs() -> int:
    """Return how many runs to do at a time: a small network does not use several cores well."""
    return min(len(METHODS), os.cpu_count() or 1) if local_devices() == ["cpu"] else len(METHODS)
