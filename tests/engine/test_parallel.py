"""Several processes that take the steps of one run compute what a single process does."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import PIPE
from typing import Any, NamedTuple

import pytest

from messi.algorithms.common.base import ALGORITHMS
from messi.core import heartbeat
from messi.core.records import EvaluationRecord, TrainRecord
from messi.core.rundir import RunDir
from messi.core.tensorfile import read_tensors
from tests.data.hangs import within

from .test_resume import contents

DATA = "--data two_subsets --per-domain 60 --target b2 --batch-per-domain 8 --device cpu"
TRAINING = "--algorithm messi --steps 13 --evaluate-every 5 --log-every 3 --balance-momentum 0.5"
OPTIONS = [*DATA.split(), *TRAINING.split()]
TOLERANCE = 1e-5
"""The differences are those of sums in another order, mostly below 1e-6."""


class Done(NamedTuple):
    """How the processes of a job have ended."""

    codes: list[int]
    outputs: list[str]
    answer: Any


Job = Callable[..., Done]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """Return a function that does a job of ``parallel_driver.py`` in several processes."""
    folder = tmp_path_factory.mktemp("parallel")
    environment = os.environ | {"MESSI_HOME": str(folder / "home")}
    command = [sys.executable, "-m", "tests.engine.parallel_driver"]
    with subprocess.Popen(
        command, cwd=Path(__file__).parents[2], env=environment, stdin=PIPE, stdout=PIPE, text=True
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        requests, codes = server.stdin, server.stdout

        def run(name: str, number: int, *arguments: Any) -> Done:
            answer = folder / "answer"
            answer.unlink(missing_ok=True)
            requests.write(json.dumps([name, number, str(answer), arguments]) + "\n")
            requests.flush()
            with within(120):
                ended = json.loads(codes.readline())
            outputs = [Path(f"{answer}.{rank}").read_text() for rank in range(number)]
            return Done(ended, outputs, json.loads(answer.read_text()) if answer.exists() else None)

        yield run


@pytest.mark.parametrize(("number", "per_domain"), [(2, 5), (4, 4)])
def test_losses_and_weights_of_every_method_are_those_of_one_process(job: Job, number: int, per_domain: int) -> None:
    """Two processes cannot divide 15 examples, or 5 of a domain; four can divide 12, or 4. Options are tested once."""
    names = ALGORITHMS.names()
    done = job("methods", number, per_domain, *(names if number == 4 else ()))
    assert done.codes == [0] * number, done.outputs
    assert {name: worst for name, worst in done.answer.items() if max(worst) > TOLERANCE} == {}
    assert done.answer.keys() >= set(names)


def test_a_step_sends_the_features_and_the_gradient_of_the_encoder_once(job: Job) -> None:
    calls, sizes, encoder = job("traffic", 2, "messi").answer
    assert calls == {"gather": 1, "begin_mean": 1}
    assert sizes == {"gather": 12 // 2 * 32 * 4, "begin_mean": encoder}


def test_a_step_with_experts_in_two_blocks_also_sends_their_routing(job: Job) -> None:
    calls, _, _ = job("traffic", 2, "gmoe").answer
    assert calls == {"gather": 2, "begin_mean": 1}


@pytest.fixture(scope="module")
def runs(job: Job, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Return undisturbed runs by their number of processes."""
    folder = tmp_path_factory.mktemp("runs")
    for number in (1, 2):
        done = job("train", number, "", *OPTIONS, "--out", str(folder / str(number)))
        assert done.codes == [0] * number, done.outputs
    return {number: folder / str(number) for number in (1, 2)}


def test_a_run_of_two_processes_has_the_records_of_a_run_of_one(runs: dict[int, Path]) -> None:
    assert_close(runs[1], runs[2])
    assert json.loads((runs[2] / "timing.json").read_text())["device"].startswith("2 x CPU")


def assert_close(left: Path, right: Path) -> None:
    pairs = list(zip(RunDir(left).read_records(), RunDir(right).read_records(), strict=True))
    for a, b in pairs:
        if isinstance(a, TrainRecord):
            assert isinstance(b, TrainRecord)
            assert a.terms == pytest.approx(b.terms, abs=TOLERANCE)
        if isinstance(a, EvaluationRecord):
            assert isinstance(b, EvaluationRecord)
            assert (a.role, a.domain, a.step, a.accuracy) == (b.role, b.domain, b.step, b.accuracy)
            assert a.loss == pytest.approx(b.loss, abs=TOLERANCE)
    weights = [read_tensors(folder / "model.safetensors")[0] for folder in (left, right)]
    assert max(float((weights[0][name] - weights[1][name]).abs().max()) for name in weights[0]) < TOLERANCE


def test_runs_killed_in_any_process_and_resumed_equal_an_undisturbed_run(
    job: Job, runs: dict[int, Path], tmp_path: Path
) -> None:
    out = ["--out", str(tmp_path / "run")]
    for fault, killed, survivor in (("kill 1 3", 1, 0), ("kill 0 8", 0, 1), ("kill 1 13", 1, 0)):
        start = time.monotonic()
        done = job("train", 2, fault, *OPTIONS, *out)
        assert done.codes[killed] == -signal.SIGKILL
        assert done.codes[survivor] == 2
        assert f"Process {killed} of 2 " in done.outputs[survivor], done.outputs
        assert done.outputs[survivor].count("Process") == 1
        assert "Traceback" not in done.outputs[survivor]
        assert time.monotonic() - start < 30
    done = job("train", 2, "", *OPTIONS, *out)
    assert done.codes == [0, 0], done.outputs
    assert contents(tmp_path / "run") == contents(runs[2])


def test_a_run_of_two_processes_continues_with_four(job: Job, runs: dict[int, Path], tmp_path: Path) -> None:
    out = ["--out", str(tmp_path / "run")]
    stopped = job("train", 2, "stop 1 7", *OPTIONS, *out)
    assert stopped.codes == [130, 2], stopped.outputs
    assert "after step 8 of 13; the state is saved. Repeat the command to resume." in stopped.outputs[0]
    assert stopped.outputs[1] == ""
    done = job("train", 4, "", *OPTIONS, *out)
    assert done.codes == [0] * 4, done.outputs
    assert "resuming after step 8 of 13" in done.outputs[0]
    assert done.outputs[1:] == ["", "", ""]
    assert_close(tmp_path / "run", runs[1])


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("freeze 1 6", "Process 1 of 2 has died or does not answer"),
        ("freeze 0 6", "Process 0 of 2 "),
        ("hang 1 6", "Process 1 of 2 has not finished its step"),
        ("stall 0 10", "Process 0 of 2 has not finished its evaluation"),
    ],
)
def test_a_process_that_hangs_is_named_and_the_others_stop(job: Job, tmp_path: Path, fault: str, sentence: str) -> None:
    done = job("train", 2, fault, *OPTIONS, "--out", str(tmp_path / "run"))
    survivor = 1 - int(fault.split()[1])
    assert done.codes[survivor] == 2
    assert done.outputs[survivor].count(sentence) == 1, done.outputs
    assert heartbeat._LIMIT + 5 < 30, "seconds; the driver uses a shorter limit"


@pytest.mark.parametrize("rank", [0, 1])
def test_an_error_of_one_process_ends_all_and_is_reported_once(job: Job, tmp_path: Path, rank: int) -> None:
    done = job("train", 2, f"fail {rank} 6", *OPTIONS, "--out", str(tmp_path / "run"))
    assert done.codes == [2, 2]
    lines = [line for output in done.outputs for line in output.splitlines() if line.startswith("messi: This")]
    assert lines == ["messi: This process has a problem."]
    assert "Traceback" not in "".join(done.outputs)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--no-deterministic"], "--no-deterministic does not ensure; omit it"),
        (["--devices", "4"], "--devices is 4, but 2 processes were started"),
    ],
)
def test_a_run_that_cannot_be_divided_is_refused_before_anything_is_written(
    job: Job, tmp_path: Path, options: list[str], sentence: str
) -> None:
    done = job("train", 2, "", *OPTIONS, *options, "--out", str(tmp_path / "run"))
    assert done.codes == [2, 2]
    assert sentence in done.outputs[0]
    assert not (tmp_path / "run").exists()
