"""A run on a machine that has its data at another path and lacks the user's own file."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from messi.algorithms.common.base import ALGORITHMS
from messi.data.datasets.arrays import Arrays
from messi.engine.config import RunConfig
from messi.engine.run import run
from messi.sweeps.launchers.common.run_process import RunProcess

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
