"""The target cannot be read in any way before the final evaluation."""

from contextlib import closing
from pathlib import Path

import pytest
import torch

from messi.algorithms.messi import MESSI
from messi.core.batch import Batch, LossTerms
from messi.core.rundir import RunDir
from messi.data.datasets.two_subsets import TwoSubsets
from messi.data.sealed_data import SealedData, TargetSealedError
from messi.data.splits import SplitConfig, make_split
from messi.engine.build import build_run
from messi.engine.config import RunConfig
from messi.engine.loop import measure, train


@pytest.fixture
def sealed() -> SealedData:
    examples = TwoSubsets(per_domain=50).load()
    return SealedData(
        examples,
        make_split(examples, [1], SplitConfig(split="stratified", validation_fraction=0.2, target_part="all"), seed=0),
    )


def test_inputs_labels_and_indices_of_the_target_are_sealed_until_opened(sealed: SealedData) -> None:
    with pytest.raises(TargetSealedError):
        sealed.indices("target", 1)
    one_target_among_sources = torch.tensor([0, 75, 120])
    for read in (sealed.features, sealed.labels):
        with pytest.raises(TargetSealedError):
            read(one_target_among_sources)
    assert len(sealed.features(torch.tensor([0, 120]))) == 2
    sealed.open_target()
    assert len(sealed.indices("target", 1)) == 50
    assert len(sealed.features(one_target_among_sources)) == 3


def test_a_method_that_reads_the_target_stops_the_run(
    tmp_path: Path, quick_config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = quick_config.resolved()
    folder = RunDir(tmp_path / "run")
    parts = build_run(config, config.data.load(), folder, torch.device("cpu"))
    honest = MESSI.loss

    def peek(self: MESSI, batch: Batch) -> LossTerms:
        parts.loader.data.features(torch.arange(len(config.data.load())))
        return honest(self, batch)

    monkeypatch.setattr(MESSI, "loss", peek)
    with folder.locked(), closing(parts.metrics):
        folder.begin(parts.description)
        with pytest.raises(TargetSealedError):
            train(parts)


def test_evaluating_the_target_during_training_raises(tmp_path: Path, quick_config: RunConfig) -> None:
    config = quick_config.resolved()
    parts = build_run(config, config.data.load(), RunDir(tmp_path), torch.device("cpu"))
    with pytest.raises(TargetSealedError):
        measure(parts, "target", 1)


def test_training_batches_never_contain_a_target_example(quick_config: RunConfig, tmp_path: Path) -> None:
    config = quick_config.resolved()
    examples = config.data.load()
    loader = build_run(config, examples, RunDir(tmp_path), torch.device("cpu")).loader
    held_out = torch.stack(list(examples.inputs))[examples.domains == 3]
    target = {tuple(row) for row in held_out.tolist()}
    for step in range(50):
        batch = loader.batch(step)
        assert not target & {tuple(row) for row in batch.inputs.tolist()}
        assert batch.domains.unique().tolist() == [0, 1, 2]
