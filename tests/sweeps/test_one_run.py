"""A run on a machine that has its data at another path and lacks the user's own file."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from messi.algorithms.common.base import ALGORITHMS
from messi.core.rundir import RunDir
from messi.core.tensorfile import read_tensors
from messi.data.datasets.arrays import Arrays
from messi.engine.config import RunConfig
from messi.engine.run import run
from messi.sweeps.launchers.common.run_process import RunProcess
from messi.sweeps.one_run import do_run

MINE = """
from messi import ERM

class Mine(ERM):
    class Config(ERM.Config):
        pass

    def loss(self, batch):
        return {name: 2 * value for name, value in super().loss(batch).items()}
"""


def test_moved_data_and_a_sent_method_give_the_same_bits(quick_config: RunConfig, tmp_path: Path) -> None:
    mine, data, moved = tmp_path / "mine.py", tmp_path / "data.npz", tmp_path / "elsewhere.npz"
    mine.write_text(MINE)
    inputs, domains = np.random.default_rng(0).normal(size=(60, 4)), np.repeat(["a1", "b1", "b2"], 20)
    np.savez(data, inputs=inputs, labels=np.arange(60) % 2, domains=domains)
    config = replace(quick_config, algorithm=ALGORITHMS.config(str(mine))(), data=Arrays(path=str(data)))
    run(config, out=tmp_path / "here", device="cpu")
    planned, content = config.to_dict(), mine.read_bytes()
    mine.write_text("raise RuntimeError")  # another file of the same name on that machine is not used
    data.rename(moved)
    process = RunProcess("cpu", 1)
    process.begin(planned, tmp_path / "there", data_paths={"path": str(moved)}, own_files={str(mine): content})
    assert process.answer() is None
    process.end()
    for name in ("run.json", "records.jsonl", "model.safetensors", "result.json"):
        assert (tmp_path / "there" / name).read_bytes() == (tmp_path / "here" / name).read_bytes()


def test_two_devices_share_a_run_that_pauses_and_continues(
    quick_config: RunConfig, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    alone = run(quick_config, out=tmp_path / "alone", device="cpu")
    planned = quick_config.resolved().to_dict()
    assert do_run({**planned, "until": 5}, tmp_path / "shared", "cpu", devices=2) is None
    assert RunDir(tmp_path / "shared").state() == "started"
    assert do_run(planned, tmp_path / "shared", "cpu", devices=2) is None
    shared = RunDir(tmp_path / "shared").read_result()
    assert (shared.selected_step, shared.source_val) == (alone.selected_step, alone.source_val)
    weights = [read_tensors(tmp_path / name / "model.safetensors")[0] for name in ("alone", "shared")]
    assert max(float((weights[0][name] - weights[1][name]).abs().max()) for name in weights[0]) < 1e-5
    assert "RANK" not in os.environ
    assert capfd.readouterr().err == ""
