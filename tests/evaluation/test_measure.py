"""The scores of a role as a whole: all of its examples together, regardless of their domain."""

from dataclasses import asdict

import pytest
import torch
from torch.nn import functional

from messi.core.records import ClassScores
from messi.evaluation.measure import evaluation_records, role_record
from messi.evaluation.predict import Predictions


def predicted(labels: list[int], said: list[int]) -> Predictions:
    return Predictions(functional.one_hot(torch.tensor(said), 3).float(), torch.tensor(labels), None)


def test_a_role_is_scored_over_the_examples_of_all_domains_and_not_domain_by_domain() -> None:
    """Class 0: three of four found, no false positive: 6/7. Class 1: both found, one false positive: 4/5.

    The first domain alone has a macro F1 of (4/5 + 2/3) / 2, the second of 1: their mean is another number.
    """
    domains = {4: predicted([0, 0, 0, 1], [0, 0, 1, 1]), 7: predicted([0, 1], [0, 1])}
    record = role_record(domains, role="unseen_val", step=5, averaged=True)
    assert record.macro_f1 == pytest.approx((6 / 7 + 4 / 5) / 2, abs=1e-15)
    whole = {"step": 5, "role": "unseen_val", "count": 6, "accuracy": 5 / 6, "averaged": True}
    assert asdict(record) == {**whole, "macro_f1": record.macro_f1, "class_scores": None}


def test_unbalanced_classes_have_their_scores_by_domain_and_by_role() -> None:
    domains = {0: predicted([0, 0, 0, 1], [0, 0, 1, 0]), 1: predicted([0, 1, 2], [0, 1, 0])}
    first, second = evaluation_records(
        domains, role="target", step=5, domain_names=("photo", "sketch"), unbalanced=True
    )
    assert first.class_scores == ClassScores(
        balanced_accuracy=(2 / 3 + 0) / 2, macro_f1=(2 * 2 / (3 + 3) + 0) / 2, majority_share=3 / 4
    )
    assert second.class_scores is not None
    assert second.class_scores.majority_share == 1 / 3
    whole = role_record(domains, role="target", step=5, unbalanced=True)
    assert whole.class_scores is not None
    assert whole.class_scores.balanced_accuracy == pytest.approx((3 / 4 + 1 / 2 + 0) / 3)
    assert (whole.class_scores.macro_f1, whole.class_scores.majority_share) == (whole.macro_f1, 4 / 7)
    assert evaluation_records(domains, role="target", step=5, domain_names=("a", "b"))[0].class_scores is None
