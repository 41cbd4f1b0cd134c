import pytest

from messi.core.errors import MessiError
from messi.core.records import EvaluationRecord, Record, Role, TrainRecord
from messi.evaluation.selection import Reader, select


def evaluation(step: int, domain: str, accuracy: float, role: Role = "source_val") -> EvaluationRecord:
    return EvaluationRecord(step=step, role=role, domain=domain, count=10, accuracy=accuracy, loss=1.0)


def test_the_mean_over_domains_decides_and_ties_go_to_the_first_step() -> None:
    records: list[Record] = [
        TrainRecord(step=1, terms={"cls": 0.0}),
        *(evaluation(10, domain, accuracy) for domain, accuracy in (("a", 1.0), ("b", 0.2))),
        *(evaluation(20, domain, accuracy) for domain, accuracy in (("a", 0.75), ("b", 0.75))),
        *(evaluation(30, domain, accuracy) for domain, accuracy in (("a", 0.5), ("b", 1.0))),
    ]
    chosen = select(records)
    assert (chosen.rule, chosen.step, chosen.score) == ("source_val", 20, 0.75)
    assert select(reversed(records)).step == 20


def test_what_the_target_says_changes_nothing() -> None:
    sources = [evaluation(10, "a", 0.9), evaluation(20, "a", 0.8)]
    target = [evaluation(10, "t", 0.0, "target"), evaluation(20, "t", 1.0, "target")]
    assert select(sources) == select([*target, *sources])


def test_a_rule_that_reads_a_role_it_did_not_name_is_stopped() -> None:
    reader = Reader([evaluation(10, "t", 1.0, "target")], frozenset({"source_val"}), "source_val")
    with pytest.raises(PermissionError, match="'source_val' may not read the role 'target'"):
        reader.accuracies("target")


def test_nothing_evaluated_and_an_unknown_rule_are_named() -> None:
    with pytest.raises(MessiError, match="Nothing was evaluated"):
        select([])
    with pytest.raises(MessiError, match="no selection rule named 'oracle'"):
        select([], "oracle")
