"""The first 20 losses of every method, as numbers in a file: a change of one needs a line in the changelog.

To write them again: MESSI_WRITE_GOLDEN=1 pytest tests/golden
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from messi.algorithms.common.base import ALGORITHMS
from messi.data.datasets.rotated_colored_mnist import RotatedColoredMNIST
from messi.data.datasets.two_subsets import TwoSubsets
from messi.engine.config import RunConfig, TrainingConfig
from messi.engine.run import run
from messi.models.encoder import EncoderConfig

STEPS = 20
BACKBONES = {"mixstyle": "tiny_cnn", "gmoe": "test_vit", "omoe": "test_vit", "dynmoe": "test_vit"}
"""Methods that require images; they train on digits."""
SEEDS = {"dynmoe": 2}
"""DynMoE's gates are thresholds. With seed 0, a token is so close to one that rounding decides about its expert."""


def config(name: str) -> RunConfig:
    algorithm, seed = ALGORITHMS.config(name)(), SEEDS.get(name, 0)
    training = TrainingConfig(steps=STEPS, evaluate_every=STEPS, log_every=1, batch_per_domain=16)
    if name not in BACKBONES:
        data = TwoSubsets(per_domain=50)
        encoder = EncoderConfig(backbone="mlp")
        return RunConfig(data=data, target=("b2",), algorithm=algorithm, encoder=encoder, training=training)
    digits = RotatedColoredMNIST(environments=6, num_sources=3)
    encoder = EncoderConfig(backbone=BACKBONES[name], pretrained=False)
    target = (digits.test_domain,)
    return RunConfig(data=digits, target=target, algorithm=algorithm, encoder=encoder, training=training, seed=seed)


class Enough(Exception):  # noqa: N818 (it is no error)
    """Ends a run after its last step: the evaluations that follow take most of the time of a vision transformer."""


class FirstLosses:
    """Collects the loss terms of every step."""

    def __init__(self) -> None:
        self.curve: list[dict[str, float]] = []

    def logged(self, step: int, terms: Mapping[str, float]) -> None:
        self.curve.append(dict(terms))
        if step == STEPS:
            raise Enough

    def started(self, step: int, steps: int) -> None: ...

    def stepped(self, step: int) -> None: ...

    def evaluated(self, step: int, accuracy: float) -> None: ...

    def finished(self) -> None: ...


@pytest.mark.parametrize("name", ALGORITHMS.names())
def test_the_first_losses_match_the_file(name: str, tmp_path: Path) -> None:
    losses = FirstLosses()
    with pytest.raises(Enough):
        run(config(name), out=tmp_path / "run", device="cpu", observers=[losses])
    curve = losses.curve
    file = Path(__file__).with_name(f"{name}.json")
    if os.environ.get("MESSI_WRITE_GOLDEN"):
        file.write_text("[\n" + ",\n".join(json.dumps(terms) for terms in curve) + "\n]\n")
    golden = json.loads(file.read_text())
    assert len(curve) == len(golden) == STEPS
    for step, (now, before) in enumerate(zip(curve, golden, strict=True), start=1):
        # Another processor sums in another order; this is the resulting difference in float32 after 20 steps of Adam.
        assert now == pytest.approx(before, rel=1e-3, abs=1e-6), f"step {step}"
