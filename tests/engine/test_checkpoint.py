"""What a checkpoint brings back, and where."""

from pathlib import Path

import pytest
import torch

from messi.algorithms.common.base import build
from messi.algorithms.messi import MESSI
from messi.core.batch import Batch, Task
from messi.engine.checkpoint import Checkpoint, load_checkpoint
from messi.engine.metrics_log import MetricsLog
from messi.engine.stepper import AdamStepper
from messi.models.encoder import EncoderConfig


def parts(folder: Path, device: str) -> tuple[MESSI, AdamStepper, MetricsLog]:
    task, encoder = Task(input_shape=(5,), num_classes=3, num_domains=2), EncoderConfig(backbone="mlp")
    algorithm = build(MESSI.Config(), task=task, encoder=encoder).to(device)
    assert isinstance(algorithm, MESSI)
    stepper = AdamStepper(algorithm, learning_rate=1e-3, weight_decay=0.0)
    return algorithm, stepper, MetricsLog(folder / "records.jsonl", [])


@pytest.mark.filterwarnings("ignore:for .* copying from a non-meta parameter")
def test_terms_that_are_not_recorded_yet_come_back_to_the_device_of_training(tmp_path: Path) -> None:
    """Those of further steps are there, and a record is the mean of all; "meta" stands in for a GPU."""
    algorithm, stepper, ledger = parts(tmp_path, "cpu")
    ledger.open(0)
    batch = Batch(torch.randn(8, 5), torch.arange(8) % 3, torch.arange(8) % 2, step=1)
    ledger.add(algorithm.update(batch, stepper))
    state = Checkpoint(run="r", step=1, algorithm=algorithm, stepper=stepper, ledger=ledger)
    state.write(tmp_path / "last.safetensors")
    ledger.close()
    elsewhere, stepper, other = parts(tmp_path, "meta")
    last = tmp_path / "last.safetensors"
    assert load_checkpoint(last, run="r", algorithm=elsewhere, stepper=stepper, ledger=other) == 1
    other.close()
    assert other.terms == ledger.terms
    assert [row.device.type for row in other.rows] == ["meta"]
