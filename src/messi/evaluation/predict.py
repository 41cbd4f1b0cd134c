"""Running a model over data, without training anything."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from messi.algorithms._base import Algorithm
from messi.core.batch import Prediction


@dataclass(frozen=True)
class Predictions:
    """What a model said of N labelled examples, on the CPU."""

    logits: Tensor
    """[N, classes]"""
    labels: Tensor
    """[N]"""
    routing: Tensor | None
    """[N, experts], or None when the method has no router."""


def predict_labelled(algorithm: Algorithm, batches: Iterable[tuple[Tensor, Tensor]]) -> Predictions:
    """Predict batches of inputs and labels and keep everything."""
    outputs, labels = [], []
    with evaluating(algorithm):
        for inputs, batch_labels in batches:
            outputs.append(predict(algorithm, inputs))
            labels.append(batch_labels.cpu())
    routing = [output.routing for output in outputs if output.routing is not None]
    return Predictions(
        logits=torch.cat([output.logits for output in outputs]),
        labels=torch.cat(labels),
        routing=torch.cat(routing) if routing else None,
    )


def predict(algorithm: Algorithm, inputs: Tensor) -> Prediction:
    """Predict one batch in the precision of training, and return float32 on the CPU."""
    with torch.inference_mode(), autocast(inputs.device):
        output = algorithm.predict(inputs)
    routing = None if output.routing is None else output.routing.float().cpu()
    return Prediction(logits=output.logits.float().cpu(), routing=routing)


def autocast(device: torch.device) -> torch.autocast:
    """Return the precision that training and prediction run in: bfloat16 on a GPU, float32 on a CPU."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda")


@contextmanager
def evaluating(algorithm: Algorithm) -> Iterator[None]:
    """Switch dropout and batch statistics off inside the block."""
    was_training = algorithm.training
    algorithm.eval()
    try:
        yield
    finally:
        algorithm.train(was_training)
