"""What a run measures on its training part is stored with its model and used wherever features are read."""

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from messi.core.batch import InputSpec
from messi.core.errors import MessiError
from messi.core.rundir import RunDir
from messi.core.tensorfile import read_tensors, write_tensors
from messi.data.datasets.arrays import Arrays
from messi.engine.average_runs import average_runs
from messi.engine.build import split_of
from messi.engine.config import RunConfig, TrainingConfig
from messi.engine.evaluate import evaluate_run, reopen
from messi.engine.run import run, run_until
from messi.engine.saved_config import read_config
from messi.evaluation.model import load

TRAINING = TrainingConfig(steps=12, evaluate_every=4, log_every=4, batch_per_domain=8, learning_rate=1e-2)
RANDOM = np.random.default_rng(0)
LABELS, DOMAINS = np.tile(["x", "y"], 60), np.repeat(["a", "b", "c"], 40)


def features() -> np.ndarray:
    """Return features of very different scales, the first of which tells the class; some are missing."""
    values = RANDOM.normal(size=(120, 4)) * [1, 1000, 1e-3, 1] + [0, 5000, 1, 0]
    values[LABELS == "y", 0] += 4
    values[RANDOM.random(120) < 0.2, 3] = np.nan
    return values.astype(np.float32)


def config(folder: Path, inputs: np.ndarray, **settings: str) -> RunConfig:
    folder.mkdir(exist_ok=True)
    np.savez(folder / "data.npz", inputs=inputs, labels=LABELS, domains=DOMAINS)
    return RunConfig(data=Arrays(path=str(folder / "data.npz"), **settings), target=("c",), training=TRAINING)  # type: ignore[arg-type]


def test_validation_and_target_rows_do_not_influence_the_model(tmp_path: Path) -> None:
    inputs = features()
    base = config(tmp_path / "a", inputs)
    split = split_of(base.resolved(), base.data.load())
    train = torch.cat(list(split.train.values()))
    changed = np.full_like(inputs, np.nan)
    changed[1::2] = 1e20 * RANDOM.normal(size=changed[1::2].shape)
    changed[train] = inputs[train]
    paths = [
        run(one, out=tmp_path / name, device="cpu").path
        for name, one in (("first", base), ("second", config(tmp_path / "b", changed)))
    ]
    first, second = (load(path) for path in paths)
    assert first.spec == second.spec
    assert first.spec.shape == (5,)
    assert first.spec.mean[1] == pytest.approx(inputs[train, 1].astype(float).mean())
    last = [read_tensors(RunDir(path).last)[0] for path in paths]
    assert all(torch.equal(tensor, last[1][name]) for name, tensor in last[0].items())


def test_records_predictions_and_later_evaluations_agree(tmp_path: Path) -> None:
    inputs = features()
    path = run(config(tmp_path / "a", inputs), out=tmp_path / "run", device="cpu").path
    result, model = RunDir(path).read_result(), load(path)
    assert result.target["c"] > 0.9
    answers = model.predict(inputs)
    right = np.array(answers.labels) == LABELS
    assert right[DOMAINS == "c"].mean() == pytest.approx(result.target["c"])
    again = {(record.role, record.domain): record.accuracy for record in evaluate_run(path)}
    assert again["target", "c"] == result.target["c"]
    _, loader = reopen(path, device="cpu")
    inside = loader.data.features(loader.data.indices("target", 2))
    torch.testing.assert_close(inside, model.encode(inputs)[DOMAINS == "c"], rtol=0, atol=0)
    other = config(tmp_path / "b", inputs[::-1].copy()).data  # the labels are reversed, too
    evaluated = {record.domain: record for record in evaluate_run(path, data=other) if record.role == "target"}
    assert evaluated["a"].count == 40, "the target of the run is now called 'a'"
    assert evaluated["a"].accuracy == pytest.approx((np.array(answers.labels)[:79:-1] == LABELS[:40]).mean())


def test_a_run_that_is_interrupted_and_resumed_is_the_same(tmp_path: Path) -> None:
    base = config(tmp_path / "a", features())
    run(base, out=tmp_path / "whole", device="cpu")
    run_until(base, 4, out=tmp_path / "half", device="cpu")
    run(base, out=tmp_path / "half", device="cpu")
    for name in ("model.safetensors", "last.safetensors", "records.jsonl", "result.json"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "half" / name).read_bytes()


def test_scaling_is_part_of_the_config_and_can_be_left_out(tmp_path: Path) -> None:
    inputs = features()[:, :3]
    scaled, unscaled = config(tmp_path / "a", inputs), config(tmp_path / "a", inputs, scaling="none")
    assert scaled.fingerprint() != unscaled.fingerprint()
    model = load(run(unscaled, out=tmp_path / "run", device="cpu").path)
    assert model.spec == InputSpec((3,))
    assert torch.equal(model.encode(inputs), torch.from_numpy(inputs))


def test_a_run_of_an_earlier_version_was_not_scaled(tmp_path: Path) -> None:
    inputs = features()[:, :3]
    path = run(config(tmp_path / "a", inputs, scaling="none"), out=tmp_path / "run", device="cpu").path
    before = load(path).predict(inputs)
    tensors, description = read_tensors(path / "model.safetensors")
    del description["spec"]["columns"], description["config"]["data"]["scaling"]
    write_tensors(tmp_path / "old.safetensors", tensors, description)
    assert torch.equal(load(tmp_path / "old.safetensors").predict(inputs).probabilities, before.probabilities)
    old = RunConfig.from_dict(description["config"])
    assert isinstance(old.data, Arrays)
    assert old.data.scaling == "none"
    assert Arrays(path="x.npz").scaling == "standardise"
    assert read_config(path) == old


def test_runs_are_averaged_only_if_they_share_their_scaling(tmp_path: Path) -> None:
    inputs = features()[:, :3]
    base = replace(config(tmp_path / "a", inputs), split_seed=0)
    paths = []
    for number, one in enumerate((base, base, config(tmp_path / "a", inputs, scaling="none"))):
        training = replace(TRAINING, learning_rate=10.0 ** -(number + 2))
        changed = replace(one, split_seed=0, training=training)
        paths.append(run(changed, out=tmp_path / str(number), device="cpu").path)
    average = average_runs(paths[:2], out=tmp_path / "average", device="cpu")
    assert load(average.path).spec == load(paths[0]).spec
    with pytest.raises(MessiError, match=r"2 cannot be averaged with the others: its features are scaled in another"):
        average_runs(paths[1:], out=tmp_path / "other", device="cpu")
    assert not (tmp_path / "other").exists()


def test_a_run_that_starts_from_another_scaling_says_so_and_uses_its_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    inputs = features()
    base = config(tmp_path / "a", inputs)
    start = run(base, out=tmp_path / "start", device="cpu").path
    run(replace(base, start=str(start), split_seed=0), out=tmp_path / "same", device="cpu")
    assert "scaled" not in caplog.text
    with caplog.at_level(logging.WARNING):
        run(replace(base, start=str(start), split_seed=1), out=tmp_path / "run", device="cpu")
    assert "were scaled with other statistics than those of this run" in caplog.text
    assert load(tmp_path / "run").spec != load(start).spec
    complete = config(tmp_path / "b", np.nan_to_num(inputs))
    with pytest.raises(MessiError, match="its features are not those of the data"):
        run(replace(complete, start=str(start)), out=tmp_path / "other", device="cpu")


def test_a_feature_that_training_cannot_use_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    inputs = features()
    inputs[DOMAINS != "c", 1] = 7
    with caplog.at_level(logging.INFO):
        run(config(tmp_path / "a", inputs), out=tmp_path / "run", device="cpu")
    assert "the same value in all training examples, so the model learns nothing from them: 1." in caplog.text
