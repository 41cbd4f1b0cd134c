"""Runs with each kind of average: where it starts, interruptions, and a single step that scores higher."""

import dataclasses
import logging
import signal
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import torch

from messi.cli.main import main
from messi.core.errors import MessiError
from messi.core.records import EvaluationRecord, Record, RoleRecord
from messi.core.run_documents import BetterStep
from messi.core.rundir import RunDir
from messi.data.datasets.two_subsets import TwoSubsets
from messi.engine.averaging import running
from messi.engine.averaging.choice import first_averaged_step
from messi.engine.config import RunConfig, TrainingConfig
from messi.engine.in_memory import train_in_memory
from messi.engine.interrupt import Interrupted
from messi.engine.run import run
from messi.evaluation.model import load
from messi.evaluation.selection import better_step, select

from .helpers import ENDED, FILES, Stops, config_of, result_of


@pytest.mark.parametrize(
    ("options", "first"),
    [
        ({"averaging": "ma", "steps": 5000}, 100),  # as published
        ({"averaging": "ema", "steps": 5001}, 100),
        ({"averaging": "ma", "steps": 10}, 1),
        ({"averaging": "ma", "steps": 10, "average_from": 0.0}, 1),
        ({"averaging": "ma", "steps": 10, "average_from": 0.9999}, 10),
        ({"averaging": "swad", "steps": 5000, "average_from": 0.5}, 1),
        ({"averaging": "ma", "steps": 5000, "probe_steps": 500}, 501),
        ({"averaging": "ema", "steps": 5000, "probe_steps": 50}, 100),
        ({"averaging": "swad", "steps": 5000, "probe_steps": 500}, 501),
    ],
)
def test_the_start_is_a_fraction_of_the_steps(options: dict[str, Any], first: int) -> None:
    assert first_averaged_step(TrainingConfig(**options)) == first


@pytest.mark.parametrize("options", [{"average_from": 1.0}, {"average_from": -0.1}, {"ema_decay": 1.0}])
def test_a_start_after_the_end_and_a_decay_of_one_are_errors(options: dict[str, Any]) -> None:
    with pytest.raises(MessiError, match=rf"{next(iter(options))} must be at least 0 and at most 0\.9999"):
        TrainingConfig(**options)


@pytest.mark.parametrize(("averaging", "first"), [("ma", 23), ("swad", 25)])
def test_no_step_of_a_probe_is_averaged(tmp_path: Path, averaging: str, first: int) -> None:
    """The probe ends between two evaluations; SWAD's valley would begin in step 13 if it could."""
    options: dict[str, Any] = {"averaging": averaging, "swad_tolerance": 9.0, "swad_optimum_patience": 2}
    config = config_of(**options, probe_steps=22, probe_learning_rate=0.05, learning_rate=0.3)
    result = run(config, out=tmp_path / "run", device="cpu")
    assert result_of(result.path)["averaged_steps"] == [first, 42]
    with pytest.raises(
        MessiError, match=rf"^averaging '{averaging}' leaves out the probe, but .* all 42 steps; reduce "
    ):
        config_of(**options, probe_steps=42)


@pytest.mark.parametrize(
    ("options", "abrupt", "polite"),
    [
        (ENDED, (3, 4, 8, 16, 20), (5, 13, 18)),
        ({"learning_rate": 0.1, "steps": 22}, (3, 4, 8, 16, 20), (5, 13, 18)),
        ({"averaging": "ma", "average_from": 0.2, "steps": 22}, (3, 16), (13,)),
        ({"averaging": "ema", "ema_decay": 0.9, "steps": 22}, (20,), (5, 8)),
    ],
    ids=["swad ended", "swad not ended", "ma", "ema"],
)
def test_a_run_interrupted_anywhere_ends_with_the_same_bits(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    abrupt: tuple[int, ...],
    polite: tuple[int, ...],
) -> None:
    monkeypatch.setattr(running, "BLOCK", 6)
    run(config_of(**options), out=tmp_path / "whole", device="cpu")
    for step in (*abrupt, *polite):
        stops = Stops(step, politely=step in polite)
        with pytest.raises(Interrupted if step in polite else ConnectionAbortedError):
            run(config_of(**options), out=tmp_path / str(step), device="cpu", observers=[stops])
        run(config_of(**options), out=tmp_path / str(step), device="cpu")
        for name in FILES:
            assert (tmp_path / str(step) / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.parametrize("averaging", ["ma", "swad"])
def test_a_killed_command_resumes_to_the_same_bits_and_its_report_names_the_steps(
    drive: Callable[..., CompletedProcess[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str], averaging: str
) -> None:
    """It is killed after step 17, with the checkpoint of step 15 half written, and resumes from step 10."""
    swad = ["--swad-optimum-patience=2", "--swad-tolerance=0.5", "--learning-rate=0.2"]
    kind = [f"--averaging={averaging}", *(swad if averaging == "swad" else ["--average-from=0.3"])]
    assert drive(tmp_path / "run", *kind, "hold:last-15", "step:17").returncode == -signal.SIGKILL
    options = "--data two_subsets --per-domain 60 --target b2 --steps 23 --evaluate-every 5 --log-every 3"
    more = "--algorithm messi --batch-per-domain 8 --balance-momentum 0.5 --device cpu --out"
    for name in ("run", "whole"):
        assert main(["train", *options.split(), *kind, *more.split(), str(tmp_path / name)]) == 0
    for name in FILES:
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    result = result_of(tmp_path / "run")
    assert result["selection"] == averaging
    first, last = result["averaged_steps"]
    assert f"{first} to {last} (mean) of 23" in capsys.readouterr().out
    assert f"{first} to {last} (mean) of 23" in (tmp_path / "run" / "report.html").read_text()


TOO_EARLY: dict[str, Any] = {"averaging": "ma", "average_from": 0.0, "learning_rate": 0.03, "steps": 24}
"""The mean over a short training from its first step lags far behind the last step."""


def too_early() -> RunConfig:
    return dataclasses.replace(config_of(**TOO_EARLY), data=TwoSubsets(per_domain=200))


def test_a_step_that_is_clearly_better_than_the_average_becomes_the_model_and_everybody_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = "--data two_subsets --per-domain 200 --target b2 --algorithm erm --batch-per-domain 8 --device cpu"
    options = [f"--{name.replace('_', '-')}={value}" for name, value in TOO_EARLY.items()]
    more = ["--evaluate-every=4", "--log-every=3", "--out", str(tmp_path / "run")]
    assert main(["train", *data.split(), *options, *more]) == 0
    printed = capsys.readouterr()
    plain = run(
        dataclasses.replace(too_early(), training=dataclasses.replace(too_early().training, averaging="none")),
        out=tmp_path / "plain",
        device="cpu",
    )
    result, same = result_of(tmp_path / "run"), result_of(plain.path)
    for name in ("selection", "selected_step", "averaged_steps", "source_val", "target", "roles"):
        assert result[name] == same[name]
    one, other = (load(path).algorithm.state_dict() for path in (tmp_path / "run", plain.path))
    assert all(torch.equal(one[name], other[name]) for name in other)
    records = RunDir(tmp_path / "run").read_records()
    best, average = select(records), select(records, averaged=True)
    assert result["better_step"] == {"step": best.step, "score": best.score, "average": average.score}
    text = f"step {best.step} alone scores {100 * best.score:.1f} % on validation and the average "
    assert f"The model has the weights of step {best.step}: {text}" in " ".join(printed.err.split())
    assert text in printed.out
    assert text in (tmp_path / "run" / "report.html").read_text()


def test_in_memory_too_the_better_step_becomes_the_model(tmp_path: Path) -> None:
    config = dataclasses.replace(too_early(), target=())
    saved = load(run(config, out=tmp_path / "run", device="cpu").path)
    model = train_in_memory(config, config.data.load(), device="cpu")
    assert (model.description.step, model.description.averaged_steps) == (24, None)
    assert saved.description.step == 24
    expected = saved.algorithm.state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in model.algorithm.state_dict().items())


def test_a_run_killed_while_it_finishes_makes_the_same_choice(tmp_path: Path) -> None:
    """The file of the model has the selected step when the average is compared, also the second time."""
    for name, options in (("step", TOO_EARLY), ("average", {**TOO_EARLY, "average_from": 0.9})):
        config = dataclasses.replace(too_early(), training=config_of(**options).training)
        whole = run(config, out=tmp_path / name / "whole", device="cpu").path
        again = run(config, out=tmp_path / name / "again", device="cpu").path
        for file in ("result.json", "diagnostics.json", "timing.json"):
            (again / file).unlink()
        run(config, out=again, device="cpu")
        assert (result_of(whole)["averaged_steps"] is None) == (name == "step")
        for file in FILES:
            assert (again / file).read_bytes() == (whole / file).read_bytes(), (name, file)


@pytest.mark.parametrize(("single", "is_better"), [(0.80, False), (0.879, False), (0.881, True)])
def test_clearly_better_means_by_two_standard_errors(single: float, is_better: bool) -> None:
    """With 100 examples and an average that scores 0.8, the standard error is 0.04."""

    def records(score: float, *, averaged: bool) -> list[Record]:
        of: dict[str, Any] = {"role": "source_val", "step": 8, "accuracy": score, "averaged": averaged}
        return [
            EvaluationRecord(domain="a", count=100, loss=0.5, **of),
            RoleRecord(count=100, macro_f1=score, **of),
        ]

    found = better_step([*records(single, averaged=False), *records(0.8, averaged=True)], "source_val")
    assert found == (BetterStep(step=8, score=single, average=0.8) if is_better else None)


def test_an_average_that_is_as_good_as_any_step_has_no_note(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="messi"):
        result = run(config_of(averaging="ma", average_from=0.9), out=tmp_path / "run", device="cpu")
    values = result_of(result.path)
    assert values["averaged_steps"] == [38, 42]
    assert values["better_step"] is None
    assert not caplog.records
