"""The command ``messi`` itself."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from tests.command import messi


def test_a_reader_that_stops_early_is_not_an_error() -> None:
    command = [sys.executable, "-m", "messi", "list", "backbones"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 141


def test_an_unknown_command_gets_a_hint() -> None:
    done = messi("trian")
    assert done.returncode == 2
    assert "Did you mean 'train'?" in done.stderr


def test_too_little_memory_is_one_sentence(tmp_path: Path) -> None:
    huge = ["--algorithm", "messi", "--num-experts", "10000", "--expert-ratio", "1e6"]
    done = messi(
        "train", "--data", "two_subsets", "--target", "b2", "--device", "cpu", "--out", "out", *huge, cwd=tmp_path
    )
    assert done.returncode == 2
    assert "memory of this machine or its GPU does not suffice" in done.stderr
    assert not (tmp_path / "out" / "run.json").exists()


def test_the_version_is_that_of_the_distribution() -> None:
    done = messi("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"messi {version('messi-dg')}\n", "")
    assert messi("--version", "train").returncode == 2
