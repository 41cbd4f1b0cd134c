"""A finished run is evaluated again on its own data, unless they have changed."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from messi.core.errors import MessiError
from messi.core.records import EvaluationRecord
from messi.core.rundir import RunDir
from messi.data.datasets.arrays import Arrays
from messi.data.datasets.folder import Folder
from messi.engine.config import RunConfig, TrainingConfig
from messi.engine.evaluate import evaluate_run, reopen
from messi.engine.protocols import ProtocolName
from messi.engine.run import run
from messi.models.encoder import EncoderConfig


def save(path: Path, seed: int) -> Arrays:
    labels, domains = np.arange(60) % 2, np.repeat(["a", "b", "c"], 20)
    inputs = np.random.default_rng(seed).normal(size=(60, 3)) + labels[:, None]
    np.savez(path, inputs=inputs, labels=labels, domains=domains)
    return Arrays(path=str(path))


@pytest.mark.parametrize("protocol", ["domainbed", "messi"])
def test_an_evaluation_repeats_the_validation_accuracy_of_the_run_augmented_or_not(
    protocol: ProtocolName, make_folder: Callable[..., Path], tmp_path: Path
) -> None:
    config = RunConfig(
        data=Folder(path=str(make_folder())),
        target=("photo",),
        encoder=EncoderConfig(backbone="tiny_cnn"),
        protocol=protocol,
        training=TrainingConfig(steps=4, evaluate_every=2, batch_per_domain=4, validation_fraction=0.4),
        seed=3,
    )
    result = run(config, out=tmp_path / "run", device="cpu")
    records = RunDir(result.path).read_records()
    measured = [r for r in records if isinstance(r, EvaluationRecord) and r.step == result.selected_step]
    assert evaluate_run(result.path, device="cpu") == measured


def test_all_roles_of_a_finished_run_are_open_and_changed_data_is_refused(tmp_path: Path) -> None:
    training = TrainingConfig(steps=4, evaluate_every=2, batch_per_domain=4)
    config = RunConfig(data=save(tmp_path / "data.npz", seed=0), target=("c",), training=training)
    result = run(config, out=tmp_path / "run", device="cpu")
    measured = {(r.role, r.domain): r.accuracy for r in evaluate_run(result.path, device="cpu")}
    assert measured == {("source_val", d): v for d, v in result.source_val.items()} | {
        ("target", "c"): result.target["c"]
    }
    model, loader = reopen(result.path, device="cpu")
    assert loader.data.labels(loader.data.indices("target", 2)).tolist() == [0, 1] * 10
    assert model.description.step == result.selected_step

    other = save(tmp_path / "data.npz", seed=1)
    with pytest.raises(MessiError, match=r"has changed since the run; name it with --data .* in their original role"):
        evaluate_run(result.path, device="cpu")
    everything = evaluate_run(result.path, data=other, device="cpu")
    assert [(r.role, r.domain, r.count) for r in everything] == [("target", domain, 20) for domain in "abc"]
