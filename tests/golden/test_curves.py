"""The first 20 losses of every method, as numbers in a file: a change of one needs a line in the changelog.

To write them again: MESSI_WRITE_GOLDEN=1 pytest tests/golden
"""

import json
import os
from pathlib import Path

import pytest

from messi.algorithms.common.base import ALGORITHMS
from messi.core.records import TrainRecord
from messi.core.rundir import RunDir
from messi.data.datasets.rotated_colored_mnist import RotatedColoredMNIST
from messi.data.datasets.two_subsets import TwoSubsets
from messi.engine.config import RunConfig, TrainingConfig
from messi.engine.run import run
from messi.models.encoder import EncoderConfig

BACKBONES = {"mixstyle": "tiny_cnn", "gmoe": "test_vit", "omoe": "test_vit", "dynmoe": "test_vit"}
"""Methods that require images; they train on digits."""


def config(name: str) -> RunConfig:
    algorithm = ALGORITHMS.config(name)()
    training = TrainingConfig(steps=20, evaluate_every=20, log_every=1, batch_per_domain=16)
    if name not in BACKBONES:
        data = TwoSubsets(per_domain=50)
        encoder = EncoderConfig(backbone="mlp")
        return RunConfig(data=data, target=("b2",), algorithm=algorithm, encoder=encoder, training=training)
    digits = RotatedColoredMNIST(environments=6, num_sources=3)
    encoder = EncoderConfig(backbone=BACKBONES[name], pretrained=False)
    return RunConfig(data=digits, target=(digits.test_domain,), algorithm=algorithm, encoder=encoder, training=training)


@pytest.mark.parametrize("name", ALGORITHMS.names())
def test_the_first_losses_match_the_file(name: str, tmp_path: Path) -> None:
    records = RunDir(run(config(name), out=tmp_path / "run", device="cpu").path).read_records()
    curve = [record.terms for record in records if isinstance(record, TrainRecord)]
    file = Path(__file__).with_name(f"{name}.json")
    if os.environ.get("MESSI_WRITE_GOLDEN"):
        file.write_text("[\n" + ",\n".join(json.dumps(terms) for terms in curve) + "\n]\n")
    golden = json.loads(file.read_text())
    assert len(curve) == len(golden) == 20
    for step, (now, before) in enumerate(zip(curve, golden, strict=True), start=1):
        # Another processor sums in another order; this is the resulting difference in float32 after 20 steps of Adam.
        assert now == pytest.approx(before, rel=1e-3, abs=1e-6), f"step {step}"
