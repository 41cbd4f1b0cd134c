"""Run a model over data, without training."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from messi.algorithms.common.base import Algorithm
from messi.algorithms.common.inference import autocast, evaluating
from messi.core.batch import Prediction
from messi.models.encoder import Encoder


@dataclass(frozen=True)
class Predictions:
    """The output of a model for N labelled examples."""

    logits: Tensor
    """[N, classes]"""
    labels: Tensor
    """[N]"""
    routing: Tensor | None
    """[N, experts], or None when the method has no router."""

    def cpu(self) -> "Predictions":
        """Wait for the device and return a copy on the CPU."""
        return Predictions(self.logits.cpu(), self.labels.cpu(), None if self.routing is None else self.routing.cpu())


def predict_labelled(algorithm: Algorithm, batches: Iterable[tuple[Tensor, Tensor]]) -> Predictions:
    """Predict batches of inputs and labels; the results stay on the device."""
    labels = []

    def inputs() -> Iterator[Tensor]:
        for batch, batch_labels in batches:
            labels.append(batch_labels)
            yield batch

    output = predict(algorithm, inputs())
    return Predictions(logits=output.logits, labels=torch.cat(labels), routing=output.routing)


def predict(algorithm: Algorithm, batches: Iterable[Tensor]) -> Prediction:
    """Predict batches in the precision of the method, and return the results as float32 on their device.

    Nothing here waits for the device.
    """
    outputs = []
    with evaluating(algorithm):
        for inputs in batches:  # loaded outside inference mode, like the batches that other threads load
            with torch.inference_mode(), autocast(algorithm, inputs.device):
                outputs.append(algorithm.predict(inputs))
    routing = [output.routing.float() for output in outputs if output.routing is not None]
    logits = torch.cat([output.logits.float() for output in outputs])
    return Prediction(logits=logits, routing=torch.cat(routing) if routing else None)


def predict_and_encode(algorithm: Algorithm, batches: Iterable[Tensor]) -> tuple[Prediction, Tensor | None]:
    """Predict batches, and also return the features of the encoder [N, width], in one pass.

    The features are None for a method without an encoder of messi, or with several.
    """
    with _encoder_outputs(algorithm) as outputs:
        prediction = predict(algorithm, batches)
    features = torch.cat([output.float() for output in outputs]) if outputs else None
    return prediction, features if features is not None and len(features) == len(prediction.logits) else None


@contextmanager
def _encoder_outputs(algorithm: Algorithm) -> Iterator[list[Tensor]]:
    """Collect what the encoders of a method return inside the block."""
    outputs: list[Tensor] = []
    encoders = [module for module in algorithm.modules() if isinstance(module, Encoder)]
    hooks = [one.register_forward_hook(lambda _module, _inputs, output: outputs.append(output)) for one in encoders]
    try:
        yield outputs
    finally:
        for hook in hooks:
            hook.remove()
