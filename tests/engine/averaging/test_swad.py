"""SWAD's averaged weights against the plain mean of recorded weights, in real runs."""

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from messi.core.records import EvaluationRecord, TrainRecord, read_records
from messi.core.rundir import RunDir
from messi.engine.averaging.swad import SWAD
from messi.engine.averaging.valley import SWADConfig, find_valley
from messi.engine.evaluate import evaluate_run
from messi.engine.protocols import PROTOCOLS
from messi.engine.run import run
from messi.evaluation.model import load
from messi.evaluation.selection import select

from .helpers import ENDED, Recorded, config_of


def source_losses(folder: Path) -> dict[int, float]:
    """Return the recorded mean loss over the source domains by step."""
    losses: dict[int, list[float]] = {}
    for record in read_records(RunDir(folder).records):
        if isinstance(record, EvaluationRecord) and record.role == "source_val" and not record.averaged:
            losses.setdefault(record.step, []).append(record.loss)
    return {step: sum(values) / len(values) for step, values in losses.items()}


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


def test_without_a_valley_the_last_segment_is_averaged_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    result = run(config_of(learning_rate=0.01), out=tmp_path / "run", device="cpu")
    assert "found no valley and averages only the steps since the second to last evaluation: no val" in caplog.text
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
        stated = {d: protocol.training(d, "large").swad_tolerance for d in ("pacs", "vlcs")}
        assert stated == {"pacs": 0.3, "vlcs": 0.2}


def test_a_record_that_does_not_mention_averages_is_of_a_single_step(tmp_path: Path) -> None:
    line = {"kind": "evaluation", "step": 3, "role": "target", "domain": "x", "count": 1, "accuracy": 1.0, "loss": 0.5}
    (tmp_path / "records.jsonl").write_text(json.dumps(line) + "\n")
    (record,) = read_records(tmp_path / "records.jsonl")
    assert isinstance(record, EvaluationRecord)
    assert not record.averaged


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
        assert (averager.average().first, averager.average().last) == (ends[-2] + 1, ends[-1])
        return
    average = averager.average()
    assert (average.first, average.last) == (ends[valley.first] + 1, ends[valley.last + 1])
    assert average.mean[0].item() == pytest.approx((average.first + average.last) / 2, rel=1e-12)
    averager.install(average)
    assert torch.equal(module[0].detach(), average.mean[0])


def test_steps_before_the_first_averaged_one_and_their_evaluations_belong_to_no_segment() -> None:
    """The head is trained alone up to step 7; evaluations after 4, 8, 12 ... then see segments 7..8, 9..12 ..."""
    module = nn.ParameterList([torch.zeros(1, dtype=torch.float64)])
    averager = SWAD(module, SWADConfig(swad_optimum_patience=2, swad_tolerance=0.3), first=7)
    for step in range(1, 17):
        module[0].data.fill_(step)
        averager.add(step)
        if step % 4 == 0:
            averager.end_segment(step, 0.1 if step == 4 else 0.5)
    average = averager.average()
    assert (average.first, average.last) == (7, 16)
    assert average.mean[0].item() == pytest.approx(11.5, rel=1e-12)


def test_weights_that_have_not_learned_are_not_averaged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With a small learning rate the loss stays near that of a guess between two classes, 0.69."""
    result = run(config_of(learning_rate=1e-5, swad_optimum_patience=1), out=tmp_path / "run", device="cpu")
    assert re.search(r"no validation loss was below 0\.6\d\d, which is 9\d% of the loss of a guess", caplog.text)
    assert json.loads((result.path / "result.json").read_text())["averaged_steps"] == [41, 42]
