"""Accuracy of a model on every domain in a role."""

from collections.abc import Mapping, Sequence

import torch

from messi.algorithms._base import Algorithm
from messi.algorithms._inference import batch_size
from messi.core.records import EvaluationRecord, Role
from messi.data.loader import Loader
from messi.evaluation.metrics import accuracy, cross_entropy, macro_f1
from messi.evaluation.predict import Predictions, predict_labelled


def predict_role(algorithm: Algorithm, loader: Loader, role: Role) -> dict[int, Predictions]:
    """Predict every domain in a role; all are on their way before the first is waited for."""
    domains = loader.vault.domains(role)
    size = batch_size(loader.device)
    answers = {d: predict_labelled(algorithm, loader.evaluation(role, d, size=size)) for d in domains}
    return {domain: predicted.cpu() for domain, predicted in answers.items()}


def evaluation_records(
    predictions: Mapping[int, Predictions],
    *,
    role: Role,
    step: int,
    domain_names: Sequence[str],
    averaged: bool = False,
) -> list[EvaluationRecord]:
    """Return one record per predicted domain."""
    return [
        EvaluationRecord(
            step=step,
            role=role,
            domain=domain_names[domain],
            count=len(predicted.labels),
            accuracy=accuracy(predicted.logits, predicted.labels),
            loss=cross_entropy(predicted.logits, predicted.labels),
            averaged=averaged,
        )
        for domain, predicted in predictions.items()
    ]


def role_summary(predictions: Mapping[int, Predictions]) -> dict[str, float]:
    """Return how a model did on all examples in a role together, whatever their domain."""
    logits = torch.cat([predicted.logits for predicted in predictions.values()])
    labels = torch.cat([predicted.labels for predicted in predictions.values()])
    return {"count": len(labels), "accuracy": accuracy(logits, labels), "macro_f1": macro_f1(logits, labels)}
