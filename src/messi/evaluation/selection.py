"""Which step's model to keep: rules that are pure functions of records and may read only the role they declare."""

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from messi.core.config import OPEN, Config
from messi.core.errors import MessiError, unknown_name
from messi.core.records import EvaluationRecord, Record, Role, RoleRecord
from messi.core.run_documents import BetterStep

Metric = Literal["accuracy", "macro_f1"]
"""What a rule maximises: the mean accuracy over domains, or macro F1 over all examples."""


class Reader:
    """Gives a rule the evaluations in the role it declared, and raises for any other role.

    They are those of single steps, or those of averaged weights.
    """

    def __init__(self, records: Iterable[Record], role: Role, rule: str, *, averaged: bool = False) -> None:
        evaluations = [r for r in records if isinstance(r, EvaluationRecord | RoleRecord)]
        self._records = [r for r in evaluations if r.averaged == averaged]
        self._role, self._rule = role, rule

    def accuracies(self, role: Role) -> dict[int, list[float]]:
        """Return the accuracies of all domains in a role, by step."""
        steps: dict[int, list[float]] = {}
        for record in self._of(role):
            if isinstance(record, EvaluationRecord):
                steps.setdefault(record.step, []).append(record.accuracy)
        return steps

    def macro_f1(self, role: Role) -> dict[int, float]:
        """Return the macro F1 over all examples in a role, by step."""
        scores = {record.step: record.macro_f1 for record in self._of(role) if isinstance(record, RoleRecord)}
        if scores.keys() != self.accuracies(role).keys():
            raise MessiError(
                f"The selection rule '{self._rule}' requires the macro F1 of every evaluation, which earlier versions "
                "of messi did not record; train again, or select by another rule, such as source_val."
            )
        return scores

    def _of(self, role: Role) -> list[EvaluationRecord | RoleRecord]:
        if role != self._role:
            raise PermissionError(f"The selection rule '{self._rule}' may not read the role '{role}'.")
        return [record for record in self._records if record.role == role]


@dataclass(frozen=True)
class Rule:
    """How steps are scored; the first step with the highest score is selected, or else the last step."""

    name: str
    role: Role
    """The role that it may read."""
    metric: Metric
    scores: Callable[[Reader], dict[int, float]]
    last: bool = False
    """Whether the last step is selected regardless of the scores."""


def _mean_over_domains(role: Role, name: str = "", *, last: bool = False) -> Rule:
    def scores(reader: Reader) -> dict[int, float]:
        return {step: statistics.fmean(values) for step, values in reader.accuracies(role).items()}

    return Rule(name or role, role, "accuracy", scores, last)


def _macro_f1(role: Role) -> Rule:
    return Rule(f"{role}_macro_f1", role, "macro_f1", lambda reader: reader.macro_f1(role))


ORACLE = "oracle"
RULES = {
    rule.name: rule
    for rule in (
        _mean_over_domains("source_val"),
        _mean_over_domains("unseen_val"),
        _macro_f1("unseen_val"),
        _mean_over_domains("source_val", ORACLE, last=True),
    )
}
SelectionRule = Literal["source_val", "unseen_val", "unseen_val_macro_f1", "oracle"]


@dataclass(frozen=True, kw_only=True)
class SelectionConfig(Config):
    """How the step whose model is kept is selected."""

    selection: SelectionRule = OPEN
    """Select by accuracy on validation data of the source domains or of unseen domains, or by macro F1 on the latter.

    Accuracy is the mean over domains; macro F1 is computed over all examples together, as in WILDS. With
    --averaging a step is only selected if it is clearly better than the average; SWAD finds its valley by the loss on
    the same data. DomainBed's oracle keeps the
    last step and measures the rest of the target, by which 'messi tune --rule oracle' chooses between runs."""


@dataclass(frozen=True)
class Selection:
    """The selected step and its score."""

    rule: str
    step: int
    score: float


def select(records: Iterable[Record], rule: str = "source_val", *, averaged: bool = False) -> Selection:
    """Return the step that a rule selects among single steps, or the average and its score."""
    if rule not in RULES:
        raise unknown_name("selection rule", rule, RULES)
    chosen = RULES[rule]
    scores = chosen.scores(Reader(records, chosen.role, rule, averaged=averaged))
    if not scores:
        raise MessiError(
            f"The selection rule '{rule}' requires evaluations on '{chosen.role}' data, but there are none; "
            f"choose another rule with --selection ({', '.join(RULES)})."
        )
    step = max(scores) if chosen.last else max(sorted(scores), key=lambda s: scores[s])
    return Selection(rule=rule, step=step, score=scores[step])


def better_step(records: Sequence[Record], rule: str) -> BetterStep | None:
    """Return the step that a rule selects, if it scores clearly higher than the averaged weights.

    Clearly: by more than two standard errors of the average's score, taken as a share of the validation examples.
    """
    single, average = select(records, rule), select(records, rule, averaged=True)
    role = RULES[rule].role
    counts = (r.count for r in records if isinstance(r, RoleRecord) and r.averaged and r.role == role)
    error = math.sqrt(average.score * (1 - average.score) / next(counts))
    if single.score <= average.score + 2 * error:
        return None
    return BetterStep(step=single.step, score=single.score, average=average.score)
