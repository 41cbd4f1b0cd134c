"""The command on a page that repeats a run."""

import shlex
from pathlib import Path

import pytest

from messi.cli.train import parse
from messi.engine.config import RunConfig
from messi.engine.run import run
from messi.reports.rerun import rerun_command
from messi.reports.runs import read_run

from .helpers import Sample


@pytest.mark.parametrize("name", ["run", "it's", 'quo"te $HOME', "new\nline"])
def test_the_command_names_the_saved_config_and_a_new_folder(tmp_path: Path, name: str) -> None:
    path = Sample(images=False).write(tmp_path / name)
    command = shlex.split(rerun_command(read_run(path)))
    assert command == ["messi", "train", "--config", f"{path}/run.json", "--out", f"{path}-again"]
    assert Path(command[3]).is_file()


def test_the_command_names_a_users_own_method(tmp_path: Path) -> None:
    own = "/methods/it's mine.py"
    path = Sample(algorithm=own, images=False).write(tmp_path / "run")
    assert shlex.split(rerun_command(read_run(path)))[-2:] == ["--algorithm", own]


def test_the_command_trains_with_the_config_of_the_run(tmp_path: Path, quick_config: RunConfig) -> None:
    path = run(quick_config, out=tmp_path / "run", device="cpu").path
    command = parse(shlex.split(rerun_command(read_run(path)))[2:])
    assert command.config == quick_config.resolved()
    assert command.out == tmp_path / "run-again"
