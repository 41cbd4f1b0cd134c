import contextlib
import dataclasses
import resource
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
import torch

from messi.algorithms.messi import MESSI
from messi.cli.main import main
from messi.core.batch import Batch, LossTerms
from messi.core.errors import MessiError
from messi.core.records import EvaluationRecord, ExampleRecord, RoutingRecord, TrainRecord
from messi.core.rundir import RunDir
from messi.core.tensorfile import read_tensors
from messi.data.datasets.arrays import Arrays
from messi.data.examples import Examples
from messi.engine.config import RunConfig
from messi.engine.run import run
from messi.evaluation.model import load
from messi.evaluation.selection import select


def test_the_records_are_complete_and_the_model_is_the_selected_one(tmp_path: Path, quick_config: RunConfig) -> None:
    result = run(quick_config, out=tmp_path / "run", device="cpu")
    records = RunDir(result.path).read_records()
    trained = [record for record in records if isinstance(record, TrainRecord)]
    assert [record.step for record in trained] == [2, 4, 6, 8, 10, 12]
    assert all(list(record.terms) == ["cls", "ssi", "sp", "bal", "div"] for record in trained)
    evaluated = [record for record in records if isinstance(record, EvaluationRecord)]
    by_role = {role: [r for r in evaluated if r.role == role] for role in ("source_val", "target")}
    assert [(r.step, r.domain) for r in by_role["source_val"]] == [
        (step, domain) for step in (5, 10, 12) for domain in ("a1", "a2", "b1")
    ]
    assert [(r.step, r.domain, r.count) for r in by_role["target"]] == [(result.selected_step, "b2", 60)]
    assert result.selected_step == select(records).step
    assert load(result.path).description.step == result.selected_step
    assert result.target == {"b2": by_role["target"][0].accuracy}
    routing = [record for record in records if isinstance(record, RoutingRecord)]
    assert {(r.domain, r.label) for r in routing} == {(d, c) for d in ("a1", "a2", "b1", "b2") for c in ("-1", "+1")}
    assert all(sum(r.experts) == pytest.approx(1) for r in routing)
    assert not [record for record in records if isinstance(record, ExampleRecord)], "features have no pictures"


def test_the_same_seed_gives_the_same_bits_and_another_seed_others(tmp_path: Path, quick_config: RunConfig) -> None:
    for name, config in (("a", quick_config), ("b", quick_config), ("c", dataclasses.replace(quick_config, seed=1))):
        run(config, out=tmp_path / name, device="cpu")
    a, b, c = ((tmp_path / name / "records.jsonl").read_bytes() for name in "abc")
    assert a == b
    assert a != c


def test_a_run_does_not_change_the_callers_random_state_and_settings(tmp_path: Path, quick_config: RunConfig) -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    run(quick_config, out=tmp_path / "run", device="cpu")
    assert torch.equal(torch.rand(3), expected)
    assert not torch.are_deterministic_algorithms_enabled()


def test_without_a_target_every_domain_is_a_source(tmp_path: Path, quick_config: RunConfig) -> None:
    result = run(dataclasses.replace(quick_config, target=()), out=tmp_path / "run", device="cpu")
    assert list(result.source_val) == ["a1", "a2", "b1", "b2"]
    assert result.target == {}


def test_the_default_folder_is_named_by_the_config(quick_config: RunConfig) -> None:
    first = run(quick_config, device="cpu")
    second = run(dataclasses.replace(quick_config, seed=1), device="cpu")
    again = run(quick_config, device="cpu")
    assert first.path == again.path != second.path
    assert first.path.name.startswith("two_subsets_messi_b2_seed0_")
    assert (first.fresh, again.fresh) == (True, False)


def test_a_loss_that_is_not_finite_stops_the_run_and_names_step_and_term(
    tmp_path: Path, quick_config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest, calls = MESSI.loss, iter(range(1, 100))

    def poisoned(self: MESSI, batch: Batch) -> LossTerms:
        terms = honest(self, batch)
        return {**terms, "ssi": terms["ssi"] * (float("nan") if next(calls) == 7 else 1)}

    monkeypatch.setattr(MESSI, "loss", poisoned)
    with pytest.raises(MessiError, match="'ssi' is nan at step 7"):
        run(quick_config, out=tmp_path / "run", device="cpu")
    tensors, description = read_tensors(RunDir(tmp_path / "run").last)
    assert description["step"] == 5
    assert all(tensor.isfinite().all() for tensor in tensors.values())
    monkeypatch.setattr(MESSI, "loss", honest)
    assert run(quick_config, out=tmp_path / "run", device="cpu").selected_step > 0


def test_weights_that_are_not_finite_never_reach_a_checkpoint(
    tmp_path: Path, quick_config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest, calls = MESSI.loss, iter(range(1, 100))

    def spoil_weights_after_the_loss(self: MESSI, batch: Batch) -> LossTerms:
        terms = honest(self, batch)
        if next(calls) == 10:
            self.head.classifier.bias.register_hook(lambda gradient: gradient * float("inf"))
        return terms

    monkeypatch.setattr(MESSI, "loss", spoil_weights_after_the_loss)
    with pytest.raises(MessiError, match="source_val loss on 'a1' is nan at step 10"):
        run(quick_config, out=tmp_path / "run", device="cpu")
    assert read_tensors(RunDir(tmp_path / "run").last)[1]["step"] == 5


def test_another_config_in_the_same_folder_is_refused_and_the_run_stays(
    tmp_path: Path, quick_config: RunConfig
) -> None:
    run(quick_config, out=tmp_path / "run", device="cpu")
    before = (tmp_path / "run" / "records.jsonl").read_bytes()
    with pytest.raises(MessiError, match="another config: seed was 0 and is now 1"):
        run(dataclasses.replace(quick_config, seed=1), out=tmp_path / "run", device="cpu")
    assert (tmp_path / "run" / "records.jsonl").read_bytes() == before


def test_a_finished_run_is_refused_if_its_data_has_changed(tmp_path: Path, quick_config: RunConfig) -> None:
    def save(inputs: np.ndarray) -> None:
        np.savez(tmp_path / "data.npz", inputs=inputs, labels=np.arange(60) % 2, domains=np.repeat(["a", "b", "c"], 20))

    config = dataclasses.replace(quick_config, data=Arrays(path=str(tmp_path / "data.npz")), target=("c",))
    before = np.random.default_rng(0).normal(size=(60, 3))
    save(before)
    first = run(config, out=tmp_path / "run", device="cpu")
    save(before + 1)
    with pytest.raises(MessiError, match=r"data has changed since the run"):
        run(config, out=tmp_path / "run", device="cpu")
    save(before)
    assert run(config, out=tmp_path / "run", device="cpu") == dataclasses.replace(first, fresh=False)


def test_a_run_that_another_process_has_finished_is_not_changed(tmp_path: Path, quick_config: RunConfig) -> None:
    """Finishing it again would truncate the records of a finished run."""

    def times() -> dict[str, int]:
        """The lock has the time at which it was last held."""
        return {file.name: file.stat().st_mtime_ns for file in (tmp_path / "run").iterdir() if file.name != "lock"}

    def load_slowly() -> Examples:
        run(quick_config, out=tmp_path / "run", device="cpu")
        written.update(times())
        return quick_config.data.load()

    written: dict[str, int] = {}
    result = run(quick_config, out=tmp_path / "run", device="cpu", load=load_slowly)
    assert not result.fresh
    assert times() == written


def test_a_checkpoint_cut_short_is_named(tmp_path: Path, quick_config: RunConfig) -> None:
    folder = RunDir(run(quick_config, out=tmp_path / "run", device="cpu").path)
    folder.result.unlink()
    folder.last.write_bytes(folder.last.read_bytes()[:1000])
    with pytest.raises(MessiError, match=r"last.safetensors is damaged, truncated or"):
        run(quick_config, out=tmp_path / "run", device="cpu")


@contextlib.contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Make the system refuse larger files inside the block, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_run_stops_with_one_sentence_if_the_system_refuses_to_write(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = "--data two_subsets --target b2 --algorithm messi --backbone mlp --steps 40 --evaluate-every 10"
    train = ["train", *options.split(), "--device", "cpu", "--out", str(tmp_path / "run")]
    with largest_file(200_000):
        assert main(train) == 2
    error = capsys.readouterr().err
    assert "Could not write" in error
    assert "File too large" in error
    assert "Traceback" not in error
    assert list((tmp_path / "run").glob("*.tmp")) == []
    assert main(train) == 0


class FillsTheDisk:
    """Fills the disk with a file after the checkpoint of step 5."""

    def __init__(self, filler: Path, checkpoint: Path) -> None:
        self.filler, self.checkpoint = filler, checkpoint

    def stepped(self, step: int) -> None:
        if step == 5:
            while not self.checkpoint.exists():
                time.sleep(0.001)
            with self.filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
                while True:
                    file.write(b"0" * 512)

    def started(self, step: int, steps: int) -> None: ...

    def logged(self, step: int, terms: Mapping[str, float]) -> None: ...

    def evaluated(self, step: int, accuracy: float) -> None: ...

    def finished(self) -> None: ...


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a small file system; the test above does without")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_stops_the_run_and_keeps_the_earlier_checkpoint(
    tmp_path: Path, small_disk: Path, quick_config: RunConfig
) -> None:
    filler, out = small_disk / "filler", small_disk / "run"
    with pytest.raises(MessiError, match=r"Could not write .*: No space left on device.*repeat the command"):
        run(quick_config, out=out, device="cpu", observers=[FillsTheDisk(filler, RunDir(out).last)])
    assert read_tensors(RunDir(out).last)[1]["step"] == 5
    assert list(out.glob("*.tmp")) == []
    filler.unlink()
    run(quick_config, out=out, device="cpu")
    run(quick_config, out=tmp_path / "uninterrupted", device="cpu")
    for name in ("records.jsonl", "model.safetensors", "last.safetensors"):
        assert (out / name).read_bytes() == (tmp_path / "uninterrupted" / name).read_bytes()
