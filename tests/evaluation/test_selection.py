import pytest

from messi.core.errors import MessiError
from messi.core.records import EvaluationRecord, Record, Role, RoleRecord, TrainRecord
from messi.evaluation.selection import RULES, Reader, select


def evaluation(step: int, domain: str, accuracy: float, role: Role = "source_val") -> EvaluationRecord:
    return EvaluationRecord(step=step, role=role, domain=domain, count=10, accuracy=accuracy, loss=1.0)


def whole(step: int, macro_f1: float, role: Role = "unseen_val", *, averaged: bool = False) -> RoleRecord:
    return RoleRecord(step=step, role=role, count=20, accuracy=0.5, macro_f1=macro_f1, averaged=averaged)


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


def test_target_records_change_nothing() -> None:
    sources = [evaluation(10, "a", 0.9), evaluation(20, "a", 0.8)]
    target = [evaluation(10, "t", 0.0, "target"), evaluation(20, "t", 1.0, "target")]
    assert select(sources) == select([*target, *sources])


def test_the_oracle_keeps_the_last_step_regardless_of_all_scores() -> None:
    records = [evaluation(10, "a", 0.9), evaluation(20, "a", 0.2), evaluation(10, "t", 1.0, "target_val")]
    chosen = select(records, "oracle")
    assert (chosen.step, chosen.score) == (20, 0.2)


def test_a_rule_that_reads_an_undeclared_role_raises() -> None:
    for rule in RULES.values():
        reader = Reader([evaluation(10, "t", 1.0, "target"), whole(10, 1.0, "target")], rule.role, rule.name)
        for read in (reader.accuracies, reader.macro_f1):
            with pytest.raises(PermissionError, match=f"'{rule.name}' may not read the role 'target'"):
                read("target")


UNSEEN: list[Record] = [
    *(evaluation(10, domain, accuracy, "unseen_val") for domain, accuracy in (("a", 0.9), ("b", 0.7))),
    *(evaluation(20, domain, accuracy, "unseen_val") for domain, accuracy in (("a", 0.5), ("b", 0.5))),
    *(evaluation(30, domain, accuracy, "unseen_val") for domain, accuracy in (("a", 0.5), ("b", 0.6))),
]


def test_macro_f1_over_all_unseen_examples_decides_and_not_their_accuracy() -> None:
    records = [*UNSEEN, whole(10, 0.2), whole(20, 0.4), whole(30, 0.4)]
    misleading = [whole(10, 1.0, "source_val"), whole(10, 1.0, "target"), whole(10, 1.0, averaged=True)]
    chosen = select([*records, *misleading], "unseen_val_macro_f1")
    assert (chosen.rule, chosen.step, chosen.score) == ("unseen_val_macro_f1", 20, 0.4)
    assert select(records, "unseen_val").step == 10


@pytest.mark.parametrize("recorded", [(), (20, 30)])
def test_a_run_that_did_not_record_macro_f1_at_every_evaluation_is_not_selected_by_it(recorded: tuple[int]) -> None:
    """The best step could be one without a record."""
    records = [*UNSEEN, *(whole(step, 0.4) for step in recorded)]
    with pytest.raises(MessiError, match=r"'unseen_val_macro_f1' requires the macro F1 .* train again, or select by"):
        select(records, "unseen_val_macro_f1")
    assert select(records, "unseen_val").step == 10


def test_nothing_evaluated_and_an_unknown_rule_are_named() -> None:
    for rule in RULES:
        with pytest.raises(MessiError, match=r"requires evaluations on '.*' data, but there are none"):
            select([], rule)
    with pytest.raises(MessiError, match="no selection rule named 'source_var'"):
        select([], "source_var")
