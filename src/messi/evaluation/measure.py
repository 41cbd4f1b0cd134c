"""The metrics of a model on each domain in a role, and on the role as a whole."""

from collections.abc import Mapping, Sequence

import torch

from messi.algorithms.common.base import Algorithm
from messi.algorithms.common.inference import batch_size
from messi.core.records import EvaluationRecord, Role, RoleRecord
from messi.data.loader import Loader
from messi.evaluation.metrics import accuracy, class_counts, class_scores, cross_entropy, macro_f1
from messi.evaluation.predict import Predictions, predict_labelled


def predict_role(algorithm: Algorithm, loader: Loader, role: Role) -> dict[int, Predictions]:
    """Predict every domain in a role; all predictions are started before the first is waited for."""
    domains = loader.data.domains(role)
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
    unbalanced: bool = False,
) -> list[EvaluationRecord]:
    """Return one record per predicted domain; for unbalanced classes it has their scores."""
    return [
        EvaluationRecord(
            step=step,
            role=role,
            domain=domain_names[domain],
            count=len(predicted.labels),
            accuracy=accuracy(predicted.logits, predicted.labels),
            loss=cross_entropy(predicted.logits, predicted.labels),
            averaged=averaged,
            class_scores=class_scores(class_counts(predicted.logits, predicted.labels)) if unbalanced else None,
        )
        for domain, predicted in predictions.items()
    ]


def role_record(
    predictions: Mapping[int, Predictions], *, role: Role, step: int, averaged: bool = False, unbalanced: bool = False
) -> RoleRecord:
    """Return the record of all predicted domains together; there must be at least one."""
    counts = torch.stack([class_counts(p.logits, p.labels) for p in predictions.values()]).sum(0)
    right, examples, _ = counts.sum(1).tolist()
    return RoleRecord(
        step=step,
        role=role,
        count=examples,
        accuracy=right / examples,
        macro_f1=macro_f1(counts),
        averaged=averaged,
        class_scores=class_scores(counts) if unbalanced else None,
    )
