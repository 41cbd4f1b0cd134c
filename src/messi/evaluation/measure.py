"""Accuracy of a model on every domain in a role."""

from collections.abc import Mapping, Sequence

from messi.algorithms._base import Algorithm
from messi.core.records import EvaluationRecord, Role
from messi.data.loader import Loader
from messi.evaluation.metrics import accuracy, cross_entropy
from messi.evaluation.predict import Predictions, batch_size, predict_labelled


def predict_role(algorithm: Algorithm, loader: Loader, role: Role) -> dict[int, Predictions]:
    """Predict every domain in a role; all are on their way before the first is waited for."""
    domains = loader.vault.domains(role)
    size = batch_size(loader.device)
    answers = {d: predict_labelled(algorithm, loader.evaluation(role, d, size=size)) for d in domains}
    return {domain: predicted.cpu() for domain, predicted in answers.items()}


def evaluation_records(
    predictions: Mapping[int, Predictions], *, role: Role, step: int, domain_names: Sequence[str]
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
        )
        for domain, predicted in predictions.items()
    ]
