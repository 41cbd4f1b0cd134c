"""SWAD's averaged weights against the plain mean of recorded weights, in real and interrupted runs, with BatchNorm."""

import dataclasses
import json
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any, NamedTuple

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
from messi.engine.run import RunResult, run
from messi.evaluation.model import load
from messi.evaluation.selection import select
from messi.models.encoder import SMALL, EncoderConfig

FILES = ("model.safetensors", "last.safetensors", "records.jsonl", "result.json")
# With this learning rate the loss is lowest after step 8 and never comes close to that again: the valley ends at 20.
ENDED: dict[str, Any] = {"learning_rate": 0.3, "swad_tolerance": 0.02, "swad_overfit_patience": 3}


def config_of(algorithm: str = "erm", **training: Any) -> RunConfig:
    options: dict[str, Any] = {"steps": 42, "evaluate_every": 4, "log_every": 3, "batch_per_domain": 8}
    return RunConfig(
        data=TwoSubsets(per_domain=60),
        target=("b2",),
        algorithm=ALGORITHMS.config(algorithm)(),
        training=TrainingConfig(averaging="swad", **{**options, **training}),
    )


def source_losses(folder: Path) -> dict[int, float]:
    """Return the recorded mean loss over the source domains by step."""
    losses: dict[int, list[float]] = {}
    for record in read_records(RunDir(folder).records):
        if isinstance(record, EvaluationRecord) and record.role == "source_val" and not record.averaged:
            losses.setdefault(record.step, []).append(record.loss)
    return {step: sum(values) / len(values) for step, values in losses.items()}


class Recorded(NamedTuple):
    """A finished run with SWAD, and the state of its algorithm after every step."""

    config: RunConfig
    result: RunResult
    states: list[dict[str, Tensor]]

    @property
    def averaged_steps(self) -> list[int]:
        steps: list[int] = json.loads((self.result.path / "result.json").read_text())["averaged_steps"]
        return steps

    def require_mean_of(self, first: int, last: int) -> None:
        """Require the saved weights to be the mean over these steps, and the buffers to be those of the last step."""
        assert self.averaged_steps == [first, last]
        assert self.result.selected_step == last
        model = load(self.result.path)
        assert model.description.averaged_steps == (first, last)
        weights = dict(model.algorithm.named_parameters())
        for name, tensor in model.algorithm.state_dict().items():
            if name in weights:
                mean = torch.stack([state[name].double() for state in self.states[first - 1 : last]]).mean(0)
                torch.testing.assert_close(tensor.double(), mean, rtol=1e-5, atol=1e-6)  # float32, one rounding a step
                assert not torch.allclose(self.states[last - 1][name].double(), mean, rtol=1e-5, atol=1e-6), name
            else:
                assert torch.equal(tensor, self.states[-1][name]), name


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Recorded]:
    """Return a function that trains with SWAD and keeps the state after every step."""

    def train(algorithm: str, **options: Any) -> Recorded:
        cls: type[Algorithm] = ALGORITHMS.load(algorithm)
        update, states = cls.update, []

        def recorded(self: Algorithm, batch: Batch, stepper: Any) -> Any:
            terms = update(self, batch, stepper)
            states.append({name: tensor.clone() for name, tensor in self.state_dict().items()})
            return terms

        monkeypatch.setattr(cls, "update", recorded)
        config = config_of(algorithm, **options)
        return Recorded(config, run(config, out=tmp_path / "run", device="cpu"), states)

    return train


def test_the_model_is_the_mean_over_a_valley_that_has_ended(record: Callable[..., Recorded]) -> None:
    done = record("erm", **ENDED)
    done.require_mean_of(5, 8)
    assert len(done.states) == 20


def test_a_valley_that_lasts_to_the_end_includes_a_last_segment_of_any_length(record: Callable[..., Recorded]) -> None:
    done = record("erm", learning_rate=0.1)
    assert list(source_losses(done.result.path))[-2:] == [40, 42]
    done.require_mean_of(9, 42)


def test_a_bump_between_low_losses_is_averaged_as_well(record: Callable[..., Recorded]) -> None:
    done = record("erm", learning_rate=0.1, swad_tolerance=0.0)
    losses = source_losses(done.result.path)
    valley = find_valley([*losses.values()], done.config.resolved().training)
    assert valley is not None
    assert [step for step, loss in losses.items() if step >= 13 and loss > valley.threshold] == [20, 24]
    done.require_mean_of(13, 42)


def test_all_networks_of_a_method_are_averaged(record: Callable[..., Recorded]) -> None:
    """Fish has a second network with its own step."""
    done = record("fish", learning_rate=0.1)
    names = {name.partition(".")[0] for name in done.states[-1]}
    assert len(names) > 1, names
    done.require_mean_of(17, 42)


def test_buffers_are_not_averaged(record: Callable[..., Recorded]) -> None:
    """Group DRO keeps its weights of the domains in a buffer, which changes at every step."""
    done = record("group_dro", learning_rate=0.1)
    buffers = [name for name, _ in load(done.result.path).algorithm.named_buffers()]
    assert buffers
    assert all(not torch.equal(done.states[-1][name], done.states[-2][name]) for name in buffers)
    done.require_mean_of(9, 42)


def test_a_valley_that_has_ended_stops_training_and_every_step_is_recorded(tmp_path: Path) -> None:
    result = run(config_of(**ENDED), out=tmp_path / "run", device="cpu")
    assert list(source_losses(result.path)) == [4, 8, 12, 16, 20]
    trained = [record.step for record in RunDir(result.path).read_records() if isinstance(record, TrainRecord)]
    assert trained == [3, 6, 9, 12, 15, 18, 20]


def test_without_a_valley_the_last_segment_is_averaged_with_a_warning(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="found no valley and averages only the steps since the second to last"):
        result = run(config_of(learning_rate=0.01), out=tmp_path / "run", device="cpu")
    assert json.loads((result.path / "result.json").read_text())["averaged_steps"] == [41, 42]


def test_the_result_is_that_of_the_averaged_model(tmp_path: Path) -> None:
    result = run(config_of(**ENDED), out=tmp_path / "run", device="cpu")
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
    perfect = [dataclasses.replace(r, step=step, accuracy=1.0) for r in averaged for step in (4, 20)]
    assert select([*single, *perfect]) == select(single), "evaluations of averaged weights select no step"


def test_the_tolerance_is_lower_for_vlcs_in_every_protocol() -> None:
    for protocol in PROTOCOLS.values():
        stated = {d: protocol.training(d, small=False).swad_tolerance for d in ("pacs", "vlcs")}
        assert stated == {"pacs": 0.3, "vlcs": 0.2}


def test_a_record_that_does_not_mention_averages_is_of_a_single_step(tmp_path: Path) -> None:
    line = {"kind": "evaluation", "step": 3, "role": "target", "domain": "x", "count": 1, "accuracy": 1.0, "loss": 0.5}
    (tmp_path / "records.jsonl").write_text(json.dumps(line) + "\n")
    (record,) = read_records(tmp_path / "records.jsonl")
    assert isinstance(record, EvaluationRecord)
    assert not record.averaged


class Stops:
    """Raises an error after a step, or requests a stop, after which a run takes one more step and saves its state."""

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


@pytest.mark.parametrize("options", [ENDED, {"learning_rate": 0.1, "steps": 22}], ids=["ended", "not ended"])
def test_a_run_interrupted_anywhere_ends_with_the_same_bits(tmp_path: Path, options: dict[str, Any]) -> None:
    run(config_of(**options), out=tmp_path / "whole", device="cpu")
    abrupt, polite = (3, 4, 8, 16, 20), (5, 13, 18)
    for step in (*abrupt, *polite):
        stops = Stops(step, politely=step in polite)
        with pytest.raises(Interrupted if step in polite else ConnectionAbortedError):
            run(config_of(**options), out=tmp_path / str(step), device="cpu", observers=[stops])
        run(config_of(**options), out=tmp_path / str(step), device="cpu")
        for name in FILES:
            assert (tmp_path / str(step) / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_killed_command_resumes_to_the_same_bits_and_its_report_names_the_steps(
    drive: Callable[..., CompletedProcess[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is killed after step 17, with the checkpoint of step 15 half written, and resumes from step 10."""
    swad = ["--averaging=swad", "--swad-optimum-patience=2", "--swad-tolerance=0.5", "--learning-rate=0.2"]
    assert drive(tmp_path / "run", *swad, "hold:last-15", "step:17").returncode == -signal.SIGKILL
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
def test_segments_of_any_length_are_averaged_by_their_steps_and_a_restored_state_continues_alike(
    segments: list[tuple[float, int]], optimum: int, overfit: int
) -> None:
    """The only weight is the number of the step: the mean over a range is half the sum of its ends."""
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
        assert len(kept) <= (max(optimum - 1, overfit - 2, 1) if valley is None else 2), "more than needed"
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


def test_batch_norm_statistics_are_those_of_the_averaged_weights_on_the_next_batches(
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
