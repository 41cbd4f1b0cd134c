"""What a checkpoint restores, and on which device."""

from pathlib import Path

import pytest
import torch

from messi.algorithms.common.base import build
from messi.algorithms.messi import MESSI
from messi.core.batch import Batch, Task
from messi.engine.checkpoint import Checkpoint, load_checkpoint
from messi.engine.metrics_log import MetricsLog
from messi.engine.stepper import AdamStepper, OptimizerConfig
from messi.models.encoder import EncoderConfig


def parts(folder: Path, device: str) -> tuple[MESSI, AdamStepper, MetricsLog]:
    task, encoder = Task(input_shape=(5,), num_classes=3, num_domains=2), EncoderConfig(backbone="mlp")
    algorithm = build(MESSI.Config(), task=task, encoder=encoder).to(device)
    assert isinstance(algorithm, MESSI)
    stepper = AdamStepper(algorithm, OptimizerConfig(learning_rate=1e-3, weight_decay=0.0))
    return algorithm, stepper, MetricsLog(folder / "records.jsonl", [])


@pytest.mark.filterwarnings("ignore:for .* copying from a non-meta parameter")
def test_pending_loss_terms_are_restored_on_the_device_of_training(tmp_path: Path) -> None:
    """Later terms are on that device, and a record is the mean of all; "meta" stands in for a GPU."""
    algorithm, stepper, metrics = parts(tmp_path, "cpu")
    metrics.open(0)
    batch = Batch(torch.randn(8, 5), torch.arange(8) % 3, torch.arange(8) % 2, step=1)
    metrics.add(algorithm.update(batch, stepper))
    state = Checkpoint(run="r", step=1, algorithm=algorithm, stepper=stepper, metrics=metrics)
    state.write(tmp_path / "last.safetensors")
    metrics.close()
    elsewhere, stepper, other = parts(tmp_path, "meta")
    last = tmp_path / "last.safetensors"
    assert load_checkpoint(last, run="r", algorithm=elsewhere, stepper=stepper, metrics=other) == 1
    other.close()
    assert other.terms == metrics.terms
    assert [row.device.type for row in other.rows] == ["meta"]
