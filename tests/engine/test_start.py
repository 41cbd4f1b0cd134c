"""A run can start from the model of another one, and its validation split can have its own seed."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from messi.algorithms.erm import ERM
from messi.algorithms.messi import MESSI
from messi.core.errors import MessiError
from messi.core.rundir import RunDir
from messi.core.tensorfile import read_tensors, tensors_checksum
from messi.data.examples import Examples
from messi.engine.build import build_run, pick_device, split_of
from messi.engine.config import RunConfig
from messi.engine.evaluate import evaluate_run
from messi.engine.run import run


@pytest.fixture
def first(quick_config: RunConfig, tmp_path: Path) -> Path:
    return run(quick_config, out=tmp_path / "runs" / "first", device="cpu").path


def initial(config: RunConfig, folder: Path) -> dict[str, object]:
    """Return the weights before the first step, as the run builds them."""
    resolved = config.resolved()
    parts = build_run(resolved, resolved.data.load(), RunDir(folder), pick_device("cpu"))
    assert parts.description.initial == tensors_checksum(parts.algorithm.state_dict())
    return {name: tensor.tolist() for name, tensor in parts.algorithm.state_dict().items()}


def test_training_starts_with_the_weights_of_the_named_run_and_not_without_it(
    first: Path, quick_config: RunConfig, tmp_path: Path
) -> None:
    weights, _ = read_tensors(first / "model.safetensors")
    wanted = {name: tensor.tolist() for name, tensor in weights.items()}
    other = replace(quick_config, seed=1, split_seed=0)
    places = (str(first), str(first / "model.safetensors"), "first")  # a folder, a file, a run next to the new one
    for start in places:
        assert initial(replace(other, start=start), tmp_path / "runs" / "other") == wanted
    assert initial(other, tmp_path / "runs" / "other") != wanted
    done = run(replace(other, start="first"), out=tmp_path / "runs" / "other", device="cpu")
    description = RunDir(done.path).read_description()
    assert description.start == description.initial == tensors_checksum(weights)
    assert RunDir(first).read_description().start is None


def test_runs_with_one_seed_have_one_start_and_others_have_not(
    first: Path, quick_config: RunConfig, tmp_path: Path
) -> None:
    known = RunDir(first).read_description().initial
    for name, config in (
        ("a", replace(quick_config, training=replace(quick_config.training, learning_rate=1e-4))),
        ("b", replace(quick_config, seed=1)),
    ):
        path = run(config, out=tmp_path / name, device="cpu").path
        assert (RunDir(path).read_description().initial == known) is (name == "a")


def test_a_changed_start_is_noticed_on_resume_and_a_finished_run_does_not_need_it(
    first: Path, quick_config: RunConfig, tmp_path: Path
) -> None:
    config = replace(quick_config, start=str(first), seed=2)
    done = run(config, out=tmp_path / "run", device="cpu")
    measured = evaluate_run(done.path, device="cpu")
    other = run(replace(quick_config, seed=3), out=tmp_path / "other", device="cpu").path
    whole = {file: (first / file).read_bytes() for file in ("model.safetensors", "run.json", "result.json")}
    for file in whole:
        (first / file).write_bytes((other / file).read_bytes())
    RunDir(done.path).result.unlink()
    with pytest.raises(MessiError, match=r"The model that the run .* started from has changed since then; restore it"):
        run(config, out=tmp_path / "run", device="cpu")
    for file, content in whole.items():
        (first / file).write_bytes(content)
    assert run(config, out=tmp_path / "run", device="cpu") == done
    first.rename(tmp_path / "moved")
    assert not run(config, out=tmp_path / "run", device="cpu").fresh
    assert evaluate_run(done.path, device="cpu") == measured


def test_a_start_that_does_not_fit_is_refused_with_the_name_of_what_differs(
    first: Path, quick_config: RunConfig, tmp_path: Path
) -> None:
    cases = (
        (
            replace(quick_config, algorithm=ERM.Config()),
            r"first: its algorithm is messi instead of erm\. .*add --algorithm messi\.",
        ),
        (replace(quick_config, algorithm=MESSI.Config(num_experts=3)), r"has the shape \[.*\] instead of \[.*\]"),
        (replace(quick_config, target=("a1",)), "which was trained on the target domain 'a1'"),
    )
    for config, message in cases:
        with pytest.raises(MessiError, match=message):
            run(replace(config, start=str(first)), out=tmp_path / "run", device="cpu")
    with pytest.raises(MessiError, match="There is no file nowhere"):
        run(replace(quick_config, start="nowhere"), out=tmp_path / "run", device="cpu")
    RunDir(first).result.unlink()
    with pytest.raises(MessiError, match=r"first is not a finished run: result\.json is missing"):
        run(replace(quick_config, start=str(first)), out=tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


def test_a_start_with_another_split_is_reported(
    first: Path, quick_config: RunConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "messi"):
        initial(replace(quick_config, start=str(first), seed=1, split_seed=0), tmp_path / "a")
        assert not caplog.messages
        initial(replace(quick_config, start=str(first), seed=1), tmp_path / "b")
    assert "may have been trained on validation examples of this run" in caplog.text


def test_the_split_seed_alone_decides_the_split(quick_config: RunConfig) -> None:
    examples: Examples = quick_config.data.load()

    def held_out(seed: int, split_seed: int | None) -> list[list[int]]:
        config = replace(quick_config, seed=seed, split_seed=split_seed).resolved()
        return [indices.tolist() for indices in split_of(config, examples).source_val.values()]

    assert held_out(0, None) == held_out(0, 0) == held_out(5, 0)
    assert held_out(5, None) == held_out(0, 5) != held_out(0, 0)
