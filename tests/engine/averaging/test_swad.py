"""SWAD's averaged weights against the plain mean of recorded ones, through real runs, kills and BatchNorm."""

import dataclasses
import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from messi.algorithms.common.base import ALGORITHMS, Algorithm
from messi.algorithms.erm import ERM
from messi.cli.main import main
from messi.core.batch import Batch, Prediction, Task
from messi.core.records import EvaluationRecord, TrainRecord, read_records
from messi.core.rundir import RunDir
from messi.core.tensorfile import read_tensors
from messi.data.datasets.two_subsets import TwoSubsets
from messi.engine import finish
from messi.engine.averaging.batch_norm import reestimate
from messi.engine.averaging.swad import SWAD
from messi.engine.averaging.valley import SWADConfig, find_valley
from messi.engine.build import build_run
from messi.engine.config import RunConfig, TrainingConfig
from messi.engine.evaluate import evaluate_run
from messi.engine.interrupt import Interrupted
from messi.engine.protocols import PROTOCOLS
from messi.engine.run import run
from messi.evaluation.model import load
from messi.evaluation.selection import select
from messi.models.encoder import SMALL, EncoderConfig

FILES = ("model.safetensors", "last.safetensors", "records.jsonl", "result.json")
# With this learning rate the loss is lowest after step 8 and never comes near that again, so the valley dies at 20.
DEAD: dict[str, Any] = {"learning_rate": 0.3, "swad_tolerance": 0.02, "swad_overfit_patience": 3}


def config_of(algorithm: str = "erm", **training: Any) -> RunConfig:
    options: dict[str, Any] = {"steps": 42, "evaluate_every": 4, "log_every": 3, "batch_per_domain": 8}
    return RunConfig(
        data=TwoSubsets(per_domain=60),
        target=("b2",),
        algorithm=ALGORITHMS.config(algorithm)(),
        training=TrainingConfig(averaging="swad", **{**options, **training}),
    )


def source_losses(folder: Path) -> dict[int, float]:
    """Return the mean loss over the source domains by step, as the records say."""
    losses: dict[int, list[float]] = {}
    for record in read_records(RunDir(folder).records):
        if isinstance(record, EvaluationRecord) and record.role == "source_val" and not record.averaged:
            losses.setdefault(record.step, []).append(record.loss)
    return {step: sum(values) / len(values) for step, values in losses.items()}


@pytest.mark.parametrize(
    ("algorithm", "options", "expected"),
    [
        pytest.param("erm", DEAD, (5, 8), id="the valley dies"),
        pytest.param("erm", {"learning_rate": 0.1}, None, id="to the end, a short segment"),
        pytest.param("erm", {"learning_rate": 0.1, "swad_tolerance": 0.0}, None, id="a bump between low losses"),
        pytest.param("fish", {"learning_rate": 0.1}, None, id="two networks"),
        pytest.param("group_dro", {"learning_rate": 0.1}, None, id="a buffer"),
    ],
)
def test_the_model_is_the_mean_of_the_weights_after_every_step_of_the_valley(
    algorithm: str,
    options: dict[str, Any],
    expected: tuple[int, int] | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cls: type[Algorithm] = ALGORITHMS.load(algorithm)
    honest, states = cls.update, []

    def recorded(self: Algorithm, batch: Batch, stepper: Any) -> Any:
        terms = honest(self, batch, stepper)
        states.append({name: tensor.clone() for name, tensor in self.state_dict().items()})
        return terms

    monkeypatch.setattr(cls, "update", recorded)
    config = config_of(algorithm, **options)
    result = run(config, out=tmp_path / "run", device="cpu")
    losses, ends = [*source_losses(result.path).values()], [0, *source_losses(result.path)]
    valley = find_valley(losses, config.resolved().training)
    assert valley is not None
    first, last = ends[valley.first] + 1, ends[valley.last + 1]
    assert expected in (None, (first, last))
    assert json.loads((result.path / "result.json").read_text())["averaged_steps"] == [first, last]
    assert result.selected_step == last
    model = load(result.path)
    weights = dict(model.algorithm.named_parameters())
    for name, tensor in model.algorithm.state_dict().items():
        if name in weights:
            mean = torch.stack([state[name].double() for state in states[first - 1 : last]]).mean(0)
            torch.testing.assert_close(tensor.double(), mean, rtol=1e-5, atol=1e-6)  # float32, one rounding a step
        else:
            assert torch.equal(tensor, states[-1][name]), "buffers are those of the last step"
    assert model.description.averaged_steps == (first, last)


def test_a_dead_valley_stops_training_and_every_step_taken_is_recorded(tmp_path: Path) -> None:
    result = run(config_of(**DEAD), out=tmp_path / "run", device="cpu")
    assert list(source_losses(result.path)) == [4, 8, 12, 16, 20]
    trained = [record.step for record in RunDir(result.path).read_records() if isinstance(record, TrainRecord)]
    assert trained == [3, 6, 9, 12, 15, 18, 20]


def test_without_a_valley_the_last_segment_is_averaged_with_a_warning(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="found no valley and averages only the steps since the second to last"):
        result = run(config_of(learning_rate=0.01), out=tmp_path / "run", device="cpu")
    assert json.loads((result.path / "result.json").read_text())["averaged_steps"] == [41, 42]


def test_the_result_is_that_of_the_averaged_model_and_says_so(tmp_path: Path) -> None:
    result = run(config_of(**DEAD), out=tmp_path / "run", device="cpu")
    values = json.loads((result.path / "result.json").read_text())
    assert (values["selection"], values["validation"]) == ("swad", "source_val")
    again = {(r.role, r.domain): r.accuracy for r in evaluate_run(result.path, device="cpu")}
    assert again == {("source_val", d): a for d, a in result.source_val.items()} | {
        ("target", "b2"): result.target["b2"]
    }
    records = RunDir(result.path).read_records()
    averaged = [r for r in records if isinstance(r, EvaluationRecord) and r.averaged]
    assert [(r.role, r.domain, r.step) for r in averaged] == [
        *(("source_val", domain, 8) for domain in ("a1", "a2", "b1")),
        ("target", "b2", 8),
    ]
    single = [r for r in records if not (isinstance(r, EvaluationRecord) and r.averaged)]
    assert select(records) == select(single), "no step is selected by what the averaged weights did"


def test_the_tolerance_is_lower_for_vlcs_in_every_protocol() -> None:
    for protocol in PROTOCOLS.values():
        stated = {d: protocol.training(d, small=False).swad_tolerance for d in ("pacs", "vlcs")}
        assert stated == {"pacs": 0.3, "vlcs": 0.2}


def test_a_record_of_before_there_were_averages_is_one_of_a_single_step(tmp_path: Path) -> None:
    line = {"kind": "evaluation", "step": 3, "role": "target", "domain": "x", "count": 1, "accuracy": 1.0, "loss": 0.5}
    (tmp_path / "records.jsonl").write_text(json.dumps(line) + "\n")
    (record,) = read_records(tmp_path / "records.jsonl")
    assert isinstance(record, EvaluationRecord)
    assert not record.averaged


class Stops:
    """Breaks a run off after a step, or asks it to stop, so that it takes one more step and saves its state."""

    def __init__(self, after: int, *, politely: bool) -> None:
        self.after, self.politely = after, politely

    def stepped(self, step: int) -> None:
        if step == self.after and self.politely:
            signal.raise_signal(signal.SIGTERM)
        elif step == self.after:
            raise ConnectionAbortedError

    def started(self, step: int, steps: int) -> None: ...

    def logged(self, step: int, terms: Mapping[str, float]) -> None: ...

    def evaluated(self, step: int, accuracy: float) -> None: ...

    def finished(self) -> None: ...


@pytest.mark.parametrize("options", [DEAD, {"learning_rate": 0.1, "steps": 22}], ids=["dead", "alive"])
def test_a_run_broken_off_anywhere_ends_with_the_same_bits(tmp_path: Path, options: dict[str, Any]) -> None:
    run(config_of(**options), out=tmp_path / "whole", device="cpu")
    abrupt, polite = (3, 4, 8, 16, 20), (5, 13, 18)
    for step in (*abrupt, *polite):
        stops = Stops(step, politely=step in polite)
        with pytest.raises(Interrupted if step in polite else ConnectionAbortedError):
            run(config_of(**options), out=tmp_path / str(step), device="cpu", observers=[stops])
        run(config_of(**options), out=tmp_path / str(step), device="cpu")
        for name in FILES:
            assert (tmp_path / str(step) / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_killed_command_goes_on_to_the_same_bits_and_its_report_names_the_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It dies after step 17, when the state after step 15 is half written, so it goes on from step 10."""
    swad = ["--averaging=swad", "--swad-optimum-patience=2", "--swad-tolerance=0.5", "--learning-rate=0.2"]
    driver = [sys.executable, str(Path(__file__).parents[1] / "driver.py"), str(tmp_path / "run"), *swad]
    kill = subprocess.run([*driver, "hold:last-15", "step:17"], capture_output=True, check=False, timeout=300)
    assert kill.returncode == -signal.SIGKILL
    options = "--data two_subsets --per-domain 60 --target b2 --steps 23 --evaluate-every 5 --log-every 3"
    more = "--batch-per-domain 8 --balance-momentum 0.5 --device cpu --out"
    for name in ("run", "whole"):
        assert main(["train", *options.split(), *swad, *more.split(), str(tmp_path / name)]) == 0
    for name in FILES:
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    first, last = json.loads((tmp_path / "run" / "result.json").read_text())["averaged_steps"]
    assert f"{first} to {last} (mean) of 23" in capsys.readouterr().out
    assert f"{first} to {last} (mean) of 23" in (tmp_path / "run" / "report.html").read_text()


curves = st.lists(
    st.tuples(st.sampled_from([0.5, 0.6, 0.7, 0.8, 1.0, 1.5]), st.integers(1, 4)), min_size=1, max_size=15
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(segments=curves, optimum=st.integers(1, 4), overfit=st.integers(1, 6))
def test_segments_of_any_length_are_averaged_by_their_steps_and_a_copy_of_the_state_goes_on_alike(
    segments: list[tuple[float, int]], optimum: int, overfit: int
) -> None:
    """The only weight is the number of the step, so that the mean of a range is half the sum of its ends."""
    module = nn.ParameterList([torch.zeros(1, dtype=torch.float64)])
    config = SWADConfig(swad_optimum_patience=optimum, swad_overfit_patience=overfit, swad_tolerance=0.3)
    averager, step, ends, losses = SWAD(module, config), 0, [0], []
    for loss, length in segments:
        for _ in range(length):
            step += 1
            module[0].data.fill_(step)
            averager.add(step)
            fresh = SWAD(module, config)
            fresh.load({name: tensor.clone() for name, tensor in averager.tensors().items()}, averager.description())
            averager = fresh
        averager.end_segment(step, loss)
        ends.append(step)
        losses.append(loss)
        valley = find_valley(losses, config)
        assert averager.ended == (valley is not None and valley.ended)
        kept = {name.partition("/")[0] for name in averager.tensors()}
        assert len(kept) <= (max(optimum - 1, overfit - 2, 1) if valley is None else 2), "no more than is needed"
        if averager.ended:
            break
    if valley is None:
        with pytest.warns(UserWarning, match="found no valley"):
            assert (averager.average().first, averager.average().last) == (ends[-2] + 1, ends[-1])
        return
    average = averager.average()
    assert (average.first, average.last) == (ends[valley.first] + 1, ends[valley.last + 1])
    assert average.mean[0].item() == pytest.approx((average.first + average.last) / 2, rel=1e-12)
    averager.install(average)
    assert torch.equal(module[0].detach(), average.mean[0])


def normalised(input_shape: tuple[int, ...]) -> tuple[nn.Module, int]:
    return nn.Sequential(nn.Linear(input_shape[0], 4), nn.BatchNorm1d(4), nn.Dropout(0.5)), 4


def test_batch_norm_has_the_statistics_of_the_averaged_weights_on_the_next_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SMALL, "mlp", normalised)
    monkeypatch.setattr(finish, "BATCH_NORM_BATCHES", 3)
    config = dataclasses.replace(config_of(steps=20, swad_optimum_patience=1), encoder=EncoderConfig(backbone="mlp"))
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
    """Has a layer that stays in evaluation, and one that prediction does not use."""

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


def test_frozen_and_unused_layers_keep_their_statistics_and_momentum_comes_back() -> None:
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
