"""Runs with each kind of average: where it starts, interruptions, and a single step that scores higher."""

import logging
import signal
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from messi.cli.main import main
from messi.core.errors import MessiError
from messi.core.records import EvaluationRecord
from messi.core.rundir import RunDir
from messi.engine.averaging import running
from messi.engine.averaging.choice import first_averaged_step
from messi.engine.config import TrainingConfig
from messi.engine.interrupt import Interrupted
from messi.engine.run import run
from messi.evaluation.selection import select

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
    more = "--batch-per-domain 8 --balance-momentum 0.5 --device cpu --out"
    for name in ("run", "whole"):
        assert main(["train", *options.split(), *kind, *more.split(), str(tmp_path / name)]) == 0
    for name in FILES:
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    result = result_of(tmp_path / "run")
    assert result["selection"] == averaging
    first, last = result["averaged_steps"]
    assert f"{first} to {last} (mean) of 23" in capsys.readouterr().out
    assert f"{first} to {last} (mean) of 23" in (tmp_path / "run" / "report.html").read_text()


TOO_EARLY = "--averaging ma --average-from 0 --learning-rate 0.03 --steps 12 --evaluate-every 4"


def test_a_step_that_scores_higher_than_the_average_is_reported_everywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The mean over a short training from its first step lags behind the last step."""
    data = "--data two_subsets --per-domain 60 --target b2 --algorithm erm --batch-per-domain 8 --device cpu"
    assert main(["train", *data.split(), *TOO_EARLY.split(), "--out", str(tmp_path / "run")]) == 0
    printed = capsys.readouterr()
    better = result_of(tmp_path / "run")["better_step"]
    records = RunDir(tmp_path / "run").read_records()
    best = select(records)
    averaged = [r for r in records if isinstance(r, EvaluationRecord) and r.averaged and r.role == "source_val"]
    mean = sum(record.accuracy for record in averaged) / len(averaged)
    assert better == {"step": best.step, "score": best.score, "average": pytest.approx(mean)}
    assert best.score > mean
    text = f"step {best.step} alone scores {100 * best.score:.1f} % on validation and the average {100 * mean:.1f} %"
    assert text in printed.out
    assert f"{text}; train for more steps" in printed.err
    assert text in (tmp_path / "run" / "report.html").read_text()


def test_an_average_that_is_as_good_as_any_step_has_no_note(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="messi"):
        result = run(config_of(averaging="ma", average_from=0.9), out=tmp_path / "run", device="cpu")
    values = result_of(result.path)
    assert values["averaged_steps"] == [38, 42]
    assert values["better_step"] is None
    assert not caplog.records
