"""The average of several runs: its weights, the greedy choice, what is refused, and kills."""

import dataclasses
import logging
import shutil
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from messi.algorithms.common.inference import evaluating
from messi.algorithms.erm import ERM
from messi.core.errors import MessiError
from messi.core.records import EvaluationRecord
from messi.core.rundir import RunDir
from messi.core.tensorfile import read_tensors
from messi.data.datasets.folder import Folder
from messi.data.datasets.two_subsets import TwoSubsets
from messi.engine import average_runs as engine
from messi.engine import build
from messi.engine.average_runs import average_runs
from messi.engine.build import build_run, split_of
from messi.engine.config import RunConfig, TrainingConfig
from messi.engine.evaluate import evaluate_run
from messi.engine.run import run
from messi.evaluation.model import load
from messi.models.encoder import SMALL, EncoderConfig

Drive = Callable[..., CompletedProcess[str]]
BASE = RunConfig(
    data=TwoSubsets(per_domain=60),
    target=("b2",),
    training=TrainingConfig(steps=12, evaluate_every=4, log_every=4, batch_per_domain=8),
    split_seed=0,
)


def changed(config: RunConfig = BASE, *, seed: int = 0, **training: object) -> RunConfig:
    return replace(config, seed=seed, training=replace(config.training, **training))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return runs that start from one short run; the second one diverges, the fourth averages over steps."""
    root = tmp_path_factory.mktemp("members")
    run(changed(steps=4), out=root / "start", device="cpu")
    configs = {
        "a": changed(seed=1, learning_rate=1e-3),
        "b": changed(seed=2, learning_rate=1.0),
        "c": changed(seed=5, learning_rate=1e-2),
        "d": changed(seed=6, learning_rate=3e-2, averaging="swad", swad_optimum_patience=1),
    }
    return [run(replace(c, start="start"), out=root / name, device="cpu").path for name, c in configs.items()]


def weights(path: Path) -> dict[str, Tensor]:
    return read_tensors(path / "model.safetensors")[0]


def float64_mean(paths: Sequence[Path]) -> dict[str, Tensor]:
    """Return the mean of float tensors, computed by numpy, and the other tensors of the first."""
    states = [weights(path) for path in paths]
    means = {}
    for name, tensor in states[0].items():
        stacked = np.stack([state[name].numpy() for state in states])
        mean = torch.from_numpy(np.asarray(stacked.astype(np.float64).mean(0)).astype(np.float32))
        means[name] = mean if tensor.is_floating_point() else tensor
    return means


def validation_accuracy(config: RunConfig, state: dict[str, Tensor], path: Path) -> float:
    """Return the mean over source domains of the accuracy on held-out examples, from the definition."""
    model, examples = load(path), config.data.load()
    model.algorithm.load_state_dict(state)
    accuracies = []
    for indices in split_of(config.resolved(), examples).source_val.values():
        assert isinstance(examples.inputs, Tensor)
        with evaluating(model.algorithm), torch.no_grad():
            logits = model.algorithm.predict(examples.inputs[indices]).logits
        accuracies.append((logits.argmax(1) == examples.labels[indices]).double().mean().item())
    return float(np.mean(accuracies))


def test_a_uniform_average_has_exactly_the_mean_of_all_tensors(members: list[Path], tmp_path: Path) -> None:
    result = average_runs(members, out=tmp_path / "average", device="cpu")
    found, wanted = weights(result.path), float64_mean(members)
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)
    folder = RunDir(result.path)
    described, stored = folder.read_description(), folder.read_result()
    assert described.average is not None
    assert [one.run for one in described.average.runs] == [RunDir(path).identity() for path in members]
    assert described.average.runs[2].settings["training.learning_rate"] == "0.01"
    assert "learning_rate" not in stored.deviations
    assert stored.deviations["steps"] == 12
    assert stored.selection == "uniform average"
    assert all(one.kept and one.with_it is None for one in stored.averaged_runs)
    assert [one.target for one in stored.averaged_runs] == [RunDir(path).read_result().target for path in members]
    measured = evaluate_run(result.path, device="cpu")
    assert {r.domain: r.accuracy for r in measured if r.role == "source_val"} == result.source_val
    assert {r.domain: r.accuracy for r in measured if r.role == "target"} == result.target
    targets = [r for r in folder.read_records() if isinstance(r, EvaluationRecord) and r.role == "target"]
    assert len(targets) == 1, "the target is opened once"
    assert not average_runs(members, out=tmp_path / "average", device="cpu").fresh
    with pytest.raises(MessiError, match="average contains the average of other runs; choose another folder"):
        average_runs(members[1:], out=tmp_path / "average", device="cpu")
    with pytest.raises(MessiError, match="a contains a run that was trained, not an average"):
        average_runs(members, out=members[0], device="cpu")
    with pytest.raises(MessiError, match="average contains the average of other runs"):
        run(changed(seed=1, learning_rate=1e-3), out=tmp_path / "average", device="cpu")


def test_the_average_of_a_run_with_itself_is_the_run(members: list[Path], tmp_path: Path) -> None:
    inputs = BASE.data.load().inputs
    assert isinstance(inputs, Tensor)
    for number, path in enumerate((members[0], members[3])):
        expected = load(path).predict(inputs)
        for runs in ([path], [path, path]):
            result = average_runs(runs, out=tmp_path / f"{number}{len(runs)}", device="cpu")
            assert torch.equal(load(result.path).predict(inputs).probabilities, expected.probabilities)
            assert result.target == RunDir(path).read_result().target


def test_the_greedy_average_is_that_of_the_definition_and_never_below_its_best_run(
    members: list[Path], tmp_path: Path
) -> None:
    result = average_runs(members, choice="greedy", out=tmp_path / "average", device="cpu")
    scores = [validation_accuracy(BASE, weights(path), path) for path in members]
    order = sorted(range(4), key=lambda place: -scores[place])
    kept, highest = [order[0]], scores[order[0]]
    tried = {order[0]: highest}
    for place in order[1:]:
        state = float64_mean([members[number] for number in (*kept, place)])
        tried[place] = validation_accuracy(BASE, state, members[0])
        if tried[place] >= highest:
            kept, highest = [*kept, place], tried[place]
    stored = RunDir(result.path).read_result().averaged_runs
    assert [one.validation for one in stored] == pytest.approx(scores)
    assert [one.with_it for one in stored] == pytest.approx([tried[place] for place in range(4)])
    assert [place for place, one in enumerate(stored) if one.kept] == sorted(kept)
    assert 1 < len(kept) < 4, "the case must show both"
    wanted = float64_mean([members[place] for place in kept])
    assert all(torch.equal(tensor, wanted[name]) for name, tensor in weights(result.path).items())
    assert np.mean(list(result.source_val.values())) == pytest.approx(highest)
    assert highest >= max(scores)


def test_runs_that_cannot_be_averaged_are_refused_before_anything_is_written(
    members: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_folder: Callable[..., Path]
) -> None:
    monkeypatch.chdir(members[0].parent)
    start = replace(changed(seed=9), start="start")
    cases = {
        "other target": (replace(BASE, target=("b1",)), "its sources are a1, a2, b2 instead of a1, a2, b1"),
        "other method": (replace(BASE, algorithm=ERM.Config()), "its algorithm is erm instead of messi"),
        "other data": (replace(BASE, data=TwoSubsets(per_domain=30)), "it was trained on other data"),
        "other weights": (changed(seed=9), "they began with different weights, and the mean of such networks is"),
        "other split": (replace(start, split_seed=1), "they validate on different examples, so one was trained on"),
    }
    for name, (config, message) in cases.items():
        other = run(config, out=tmp_path / "runs" / name, device="cpu").path
        shutil.rmtree(tmp_path / "runs" / "start", ignore_errors=True)
        with pytest.raises(MessiError, match=f"{name} cannot be averaged with .*a: {message}"):
            average_runs([members[0], other], out=tmp_path / "average", device="cpu")
    images = Folder(path=str(make_folder()))
    for size in (8, 16):
        encoder = EncoderConfig(backbone="tiny_cnn", image_size=size)
        config = replace(BASE, data=images, target=("paint",), algorithm=ERM.Config(), encoder=encoder)
        run(config, out=tmp_path / f"size{size}", device="cpu")
    with pytest.raises(MessiError, match="its images are resized or normalised in another way"):
        average_runs([tmp_path / "size8", tmp_path / "size16"], out=tmp_path / "average", device="cpu")
    with pytest.raises(MessiError, match="nothing to average; name at least one run folder"):
        average_runs([], out=tmp_path / "average", device="cpu")
    with pytest.raises(MessiError, match="There is no folder nowhere"):
        average_runs([members[0], "nowhere"], out=tmp_path / "average", device="cpu")
    copied = Path(shutil.copytree(members[1], tmp_path / "copied"))
    model = (copied / "model.safetensors").read_bytes()
    (copied / "model.safetensors").write_bytes(model[:-8] + bytes(8))
    with pytest.raises(MessiError, match=r"copied/model\.safetensors is damaged"):
        average_runs([members[0], copied], out=tmp_path / "average", device="cpu")
    (copied / "model.safetensors").write_bytes(model)
    (copied / "records.jsonl").unlink()
    with pytest.raises(MessiError, match=r"records\.jsonl is missing, so the validation score .* leave the run out"):
        average_runs([members[0], copied], out=tmp_path / "average", device="cpu")
    (copied / "result.json").unlink()
    with pytest.raises(MessiError, match="copied is not a finished run"):
        average_runs([members[0], copied], out=tmp_path / "average", device="cpu")
    assert not (tmp_path / "average").exists()


def test_changed_data_is_refused(members: list[Path], tmp_path: Path) -> None:
    with pytest.raises(MessiError, match=r"The data of .*a has changed since the run; restore it"):
        average_runs(members[:1], out=tmp_path / "average", device="cpu", load_data=TwoSubsets(per_domain=30).load)
    assert not (tmp_path / "average").exists()


def test_runs_of_earlier_versions_are_averaged_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(build, "tensors_checksum", lambda _tensors: None)
        runs = [run(changed(seed=seed, steps=4), out=tmp_path / str(seed), device="cpu").path for seed in (1, 2)]
    with caplog.at_level(logging.WARNING, "messi"):
        average_runs(runs, out=tmp_path / "average", device="cpu")
    assert "it is unknown whether all began with the same weights" in caplog.text


def normalised(input_shape: tuple[int, ...]) -> tuple[nn.Module, int]:
    return nn.Sequential(nn.Linear(input_shape[0], 4), nn.BatchNorm1d(4)), 4


def test_batch_norm_statistics_are_those_of_the_averaged_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SMALL, "mlp", normalised)
    monkeypatch.setattr(engine, "BATCH_NORM_BATCHES", 3)
    base = replace(BASE, algorithm=ERM.Config(), encoder=EncoderConfig(backbone="mlp"))
    configs = [changed(base, learning_rate=rate) for rate in (1e-3, 1e-2)]
    runs = [run(config, out=tmp_path / str(number), device="cpu").path for number, config in enumerate(configs)]
    state = weights(average_runs(runs, out=tmp_path / "average", device="cpu").path)
    resolved = configs[0].resolved()
    parts = build_run(resolved, resolved.data.load(), RunDir(tmp_path / "other"), torch.device("cpu"))
    weight, bias = state["encoder.network.0.weight"], state["encoder.network.0.bias"]
    seen = [parts.loader.batch(step).inputs @ weight.T + bias for step in (13, 14, 15)]
    torch.testing.assert_close(
        state["encoder.network.1.running_mean"], torch.stack([one.mean(0) for one in seen]).mean(0)
    )
    alone = average_runs(runs[:1], out=tmp_path / "alone", device="cpu").path
    assert all(torch.equal(tensor, weights(runs[0])[name]) for name, tensor in weights(alone).items())


def test_a_killed_average_is_repeated_and_equals_an_uninterrupted_one(
    drive: Drive, members: list[Path], tmp_path: Path
) -> None:
    names = ("run.json", "seen.safetensors", "model.safetensors", "records.jsonl", "result.json", "diagnostics.json")
    places: tuple[list[str], ...] = ([], ["sync:1", "save:2", "sync:9"])
    found = []
    for number, kills in enumerate(places):
        folder = tmp_path / str(number)
        for kill in kills:
            assert drive(folder, kill, *members[:3], "--choice=greedy").returncode == -signal.SIGKILL
            assert not (folder / "result.json").exists()
        done = drive(folder, *members[:3], "--choice=greedy")
        assert done.returncode == 0, done.stderr
        found.append({name: (folder / name).read_bytes() for name in names})
    assert all(contents == found[0] for contents in found)


def test_an_average_can_be_averaged_and_started_from(members: list[Path], tmp_path: Path) -> None:
    inner = average_runs([members[0], members[2]], out=tmp_path / "inner", device="cpu").path
    outer = average_runs([inner, members[3]], out=tmp_path / "outer", device="cpu").path
    wanted = float64_mean([inner, members[3]])
    assert all(torch.equal(tensor, wanted[name]) for name, tensor in weights(outer).items())
    again = run(replace(changed(seed=8, steps=4), start=str(outer)), out=tmp_path / "again", device="cpu")
    assert dataclasses.asdict(RunDir(again.path).read_description())["start"] is not None
