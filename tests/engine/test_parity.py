"""The engine adds nothing: the same training in plain torch gives the same weights."""

from pathlib import Path

import torch
from torch.nn import functional

from messi.algorithms.erm import ERM
from messi.core.rundir import RunDir
from messi.core.tensorfile import read_tensors
from messi.data.datasets.two_subsets import TwoSubsets
from messi.data.loader import Loader
from messi.engine.build import build_run
from messi.engine.config import RunConfig, TrainingConfig
from messi.engine.run import run

STEPS = 30


def plain_torch(model: ERM, loader: Loader) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-6)
    for step in range(1, STEPS + 1):
        batch = loader.batch(step)
        logits = model.classifier(model.encoder(batch.inputs))
        losses = [
            functional.cross_entropy(logits[batch.domains == d], batch.labels[batch.domains == d]) for d in range(3)
        ]
        optimizer.zero_grad()
        torch.stack(losses).mean().backward()
        optimizer.step()


def test_training_by_the_engine_equals_training_in_plain_torch(tmp_path: Path) -> None:
    config = RunConfig(
        data=TwoSubsets(per_domain=60),
        target=("a1",),
        algorithm=ERM.Config(),
        training=TrainingConfig(steps=STEPS, evaluate_every=7, batch_per_domain=8),
    )
    run(config, out=tmp_path / "run", device="cpu")
    resolved = config.resolved()
    parts = build_run(resolved, resolved.data.load(), RunDir(tmp_path / "unused"), torch.device("cpu"))
    assert isinstance(parts.algorithm, ERM)
    start = {name: tensor.clone() for name, tensor in parts.algorithm.state_dict().items()}
    plain_torch(parts.algorithm, parts.loader)
    trained, _ = read_tensors(RunDir(tmp_path / "run").last)
    for name, tensor in parts.algorithm.state_dict().items():
        assert not torch.equal(tensor, start[name])
        torch.testing.assert_close(trained[f"algorithm/{name}"], tensor, rtol=1e-5, atol=1e-7)
