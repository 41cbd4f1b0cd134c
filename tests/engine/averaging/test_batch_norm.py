"""BatchNorm statistics of averaged weights."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from messi.algorithms.erm import ERM
from messi.core.batch import Prediction, Task
from messi.core.rundir import RunDir
from messi.core.tensorfile import read_tensors
from messi.engine import finish
from messi.engine.averaging.batch_norm import reestimate
from messi.engine.build import build_run
from messi.engine.run import run
from messi.models.encoder import SMALL, EncoderConfig

from .helpers import config_of


def normalised(input_shape: tuple[int, ...]) -> tuple[nn.Module, int]:
    return nn.Sequential(nn.Linear(input_shape[0], 4), nn.BatchNorm1d(4), nn.Dropout(0.5)), 4


@pytest.mark.parametrize("averaging", ["ma", "ema", "swad"])
def test_batch_norm_statistics_are_those_of_the_averaged_weights_on_the_next_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, averaging: str
) -> None:
    monkeypatch.setitem(SMALL, "mlp", normalised)
    monkeypatch.setattr(finish, "BATCH_NORM_BATCHES", 3)
    options: dict[str, Any] = {"averaging": averaging, "learning_rate": 0.1, "swad_optimum_patience": 1}
    config = dataclasses.replace(config_of(steps=20, **options), encoder=EncoderConfig(backbone="mlp"))
    result = run(config, out=tmp_path / "run", device="cpu")
    state, _ = read_tensors(RunDir(result.path).model)
    weight, bias = state["encoder.network.0.weight"], state["encoder.network.0.bias"]
    resolved = config.resolved()
    parts = build_run(resolved, config.data.load(), RunDir(tmp_path / "other"), torch.device("cpu"))
    seen = [parts.loader.batch(step).inputs @ weight.T + bias for step in (21, 22, 23)]
    means, variances = (torch.stack([getattr(s, kind)(0) for s in seen]).mean(0) for kind in ("mean", "var"))
    torch.testing.assert_close(state["encoder.network.1.running_mean"], means)
    torch.testing.assert_close(state["encoder.network.1.running_var"], variances)
    assert state["encoder.network.1.num_batches_tracked"] == 3


class HalfFrozen(ERM):
    """Has a layer that stays in evaluation mode, and one that prediction does not use."""

    def __init__(self) -> None:
        task = Task(input_shape=(2,), num_classes=2, num_domains=2)
        super().__init__(ERM.Config(), task=task, encoder=EncoderConfig(backbone="identity", pretrained=False))
        self.frozen, self.free, self.unused = (nn.BatchNorm1d(2) for _ in range(3))
        self.unused.running_mean = torch.tensor([5.0, 6.0])

    def train(self, mode: bool = True) -> "HalfFrozen":
        super().train(mode)
        if hasattr(self, "frozen"):
            self.frozen.eval()
        return self

    def predict(self, inputs: Tensor) -> Prediction:
        return Prediction(logits=self.free(self.frozen(inputs)))


def test_frozen_and_unused_layers_keep_their_statistics_and_momentum_is_restored() -> None:
    algorithm = HalfFrozen()
    batches = torch.randn(4, 8, 2, generator=torch.Generator().manual_seed(0)) + 3
    reestimate(algorithm, batches)
    state = algorithm.state_dict()
    assert torch.equal(state["frozen.running_mean"], torch.zeros(2))
    assert torch.equal(state["unused.running_mean"], torch.tensor([5.0, 6.0]))
    scale = (1 + algorithm.frozen.eps) ** -0.5
    torch.testing.assert_close(state["free.running_mean"], batches.mean((0, 1)) * scale)
    assert algorithm.free.momentum == 0.1


def test_without_batch_norm_no_batch_is_drawn() -> None:
    task = Task(input_shape=(2,), num_classes=2, num_domains=2)
    algorithm = ERM(ERM.Config(), task=task, encoder=EncoderConfig(backbone="identity", pretrained=False))
    batches = iter(torch.zeros(2, 4, 2))
    reestimate(algorithm, batches)
    assert len(list(batches)) == 2
