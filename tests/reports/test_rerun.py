import ast
import dataclasses
import json
import shlex
from pathlib import Path

import pytest

from messi.algorithms.common.base import ALGORITHMS
from messi.cli.train import parse
from messi.data.datasets.common.base import DataConfig
from messi.data.datasets.folder import Folder
from messi.data.datasets.rotated_colored_mnist import RotatedColoredMNIST
from messi.engine.config import RunConfig, TrainingConfig
from messi.reports.rerun import rerun_command, rerun_snippet
from messi.reports.runs import FinishedRun, read_run

from .helpers import Sample


@pytest.fixture
def sample(tmp_path: Path) -> FinishedRun:
    return read_run(Sample(images=False).write(tmp_path / "run"))


def parsed(sample: FinishedRun, config: RunConfig) -> RunConfig:
    """Return what the command of a run with this config trains."""
    stored = json.loads(json.dumps(config.resolved().to_dict()))
    command = rerun_command(dataclasses.replace(sample, config=stored)).replace("\\\n", "")
    program, subcommand, *arguments = shlex.split(command)
    assert (program, subcommand) == ("messi", "train")
    again, *_ = parse(arguments)
    return again.resolved()


@pytest.mark.parametrize("name", ALGORITHMS.names())
def test_the_command_trains_the_same(sample: FinishedRun, name: str) -> None:
    config = RunConfig(
        data=RotatedColoredMNIST(num_sources=3, budget=500),
        target=("rot0-p0.5",),
        algorithm=ALGORITHMS.config(name)(),
        protocol="domainbed",
        training=TrainingConfig(steps=7, validation_augmentation=True, deterministic=False, learning_rate=3e-7),
        seed=5,
    )
    assert parsed(sample, config) == config.resolved()


def test_names_with_spaces_and_quotes_reach_the_command_whole(sample: FinishedRun, tmp_path: Path) -> None:
    folder = tmp_path / "it's a $folder"
    folder.mkdir()
    data: DataConfig = Folder(path=str(folder))
    config = RunConfig(data=data, target=('a "b"', "c d"), sources=("$HOME", "e"))
    assert parsed(sample, config) == config.resolved()


def test_a_run_that_held_nothing_out_says_so(sample: FinishedRun) -> None:
    config = RunConfig(data=RotatedColoredMNIST())
    assert parsed(sample, config).target == ("none",)  # without it, every domain would be held out in turn


def test_the_lines_to_run_again_name_the_folders_whatever_they_are_called(tmp_path: Path) -> None:
    names = ["it's", 'quo"te', "new\nline"]
    runs = [read_run(Sample(seed=place).write(tmp_path / name)) for place, name in enumerate(names)]
    (loop,) = [node for node in ast.parse(rerun_snippet(runs)).body if isinstance(node, ast.For)]
    assert ast.literal_eval(loop.iter) == names


def test_the_lines_to_run_again_name_a_method_of_ones_own_once(tmp_path: Path) -> None:
    own = "/methods/it's mine.py"
    runs = [read_run(Sample(algorithm=name).write(tmp_path / str(n))) for n, name in enumerate((own, "erm", own))]
    calls = [node for node in ast.walk(ast.parse(rerun_snippet(runs))) if isinstance(node, ast.Call)]
    (given,) = [word.value for call in calls for word in call.keywords if word.arg == "files"]
    assert ast.literal_eval(given) == [own]
    assert "files=" not in rerun_snippet(runs[1:2])
