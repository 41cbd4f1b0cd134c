"""Contract tests for methods that require a vision transformer."""

import copy
import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from messi.algorithms.common.base import ALGORITHMS
from messi.core.batch import Batch
from messi.core.records import RoutingRecord, TrainRecord
from messi.core.rundir import RunDir
from messi.core.seeding import derive_seed
from messi.data.datasets.folder import Folder
from messi.engine.build import build_run
from messi.engine.config import RunConfig, TrainingConfig
from messi.engine.run import run
from messi.engine.stepper import AdamStepper, Flatness, OptimizerConfig, total
from messi.evaluation.model import load
from messi.evaluation.predict import predict

from .moe_toys import ENCODER, NAMES, fit, make, separable

EACH = pytest.mark.parametrize("name", NAMES)


@EACH
def test_without_router_noise_the_order_of_the_batch_does_not_matter(name: str) -> None:
    """Router noise depends on the position in the batch, so it is switched off here."""
    batch = separable(0)
    order = torch.randperm(len(batch), generator=torch.Generator().manual_seed(0))
    shuffled = Batch(inputs=batch.inputs[order], labels=batch.labels[order], domains=batch.domains[order])
    losses = []
    for one in (batch, shuffled):
        algorithm = make(name) if name == "dynmoe" else make(name, gate_noise=0.0)
        losses.append(
            total(algorithm.update(one, AdamStepper(algorithm, OptimizerConfig(learning_rate=1e-3, weight_decay=0))))
        )
    torch.testing.assert_close(losses[0], losses[1], rtol=1e-5, atol=1e-6)


@EACH
def test_prediction_changes_no_state(name: str) -> None:
    """It also keeps no graph alive until the next step."""
    algorithm = make(name)
    fit(algorithm, 2)
    before = copy.deepcopy(algorithm.state_dict())
    predict(algorithm, [separable(0).inputs])
    assert algorithm.training
    assert all(torch.equal(value, before[key]) for key, value in algorithm.state_dict().items())
    copy.deepcopy(algorithm)  # fails while a routing with its graph is still referenced


@EACH
@pytest.mark.parametrize("flatness", ["sam", "sagm"])
def test_it_trains_with_sam_and_sagm(name: str, flatness: Flatness) -> None:
    algorithm = make(name)
    config = OptimizerConfig(learning_rate=1e-3, weight_decay=0, flatness=flatness, sagm_alpha=1e-3)
    before = copy.deepcopy(algorithm.state_dict())
    fit(algorithm, 2, stepper=AdamStepper(algorithm, config))
    assert all(value.isfinite().all() for value in algorithm.state_dict().values())
    assert not all(torch.equal(value, before[key]) for key, value in algorithm.state_dict().items())


@EACH
def test_a_saved_run_predicts_like_the_model_in_memory(
    name: str, tmp_path: Path, make_folder: Callable[..., Path]
) -> None:
    folder = make_folder(images=5)
    config = RunConfig(
        data=Folder(path=str(folder)),
        target=("paint",),
        algorithm=ALGORITHMS.config(name)(),
        encoder=ENCODER,
        training=TrainingConfig(steps=3, evaluate_every=3, log_every=1, batch_per_domain=4),
    ).resolved()
    result = run(config, out=tmp_path / "run", device="cpu")
    records = RunDir(result.path).read_records()
    assert len([record for record in records if isinstance(record, TrainRecord)]) == 3
    routing = [record for record in records if isinstance(record, RoutingRecord)]
    assert {len(record.experts) for record in routing} == {8 if name == "dynmoe" else 6}
    parts = build_run(config, config.data.load(), RunDir(tmp_path / "unused"), torch.device("cpu"))
    for step in range(1, 4):
        torch.manual_seed(derive_seed("step", parts.config.seed, step))
        parts.algorithm.update(parts.loader.batch(step), parts.stepper)
    saved = load(result.path)
    pictures = sorted(folder.glob("photo/*/*.png"))
    found = saved.predict(pictures)
    expected = dataclasses.replace(saved, algorithm=parts.algorithm.eval()).predict(pictures)
    torch.testing.assert_close(found.probabilities, expected.probabilities)
    torch.testing.assert_close(found.experts, expected.experts)
