"""Which step's model to keep: pure functions of records, each of which may read only the roles that it names."""

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from messi.core.errors import MessiError, unknown_name
from messi.core.records import EvaluationRecord, Record, Role


class Reader:
    """Hands a rule the evaluations of single steps in the roles that it declared, and raises for any other."""

    def __init__(self, records: Iterable[Record], roles: frozenset[Role], rule: str) -> None:
        self._records = [r for r in records if isinstance(r, EvaluationRecord) and not r.averaged]
        self._roles, self._rule = roles, rule

    def accuracies(self, role: Role) -> dict[int, list[float]]:
        """Return the accuracies of all domains in a role, by step."""
        if role not in self._roles:
            raise PermissionError(f"The selection rule '{self._rule}' may not read the role '{role}'.")
        steps: dict[int, list[float]] = {}
        for record in self._records:
            if record.role == role:
                steps.setdefault(record.step, []).append(record.accuracy)
        return steps


@dataclass(frozen=True)
class Rule:
    """A way to score steps; the best step is the first with the highest score."""

    name: str
    roles: frozenset[Role]
    scores: Callable[[Reader], dict[int, float]]


def _mean_over_domains(role: Role) -> Rule:
    def scores(reader: Reader) -> dict[int, float]:
        return {step: statistics.fmean(values) for step, values in reader.accuracies(role).items()}

    return Rule(role, frozenset({role}), scores)


RULES = {rule.name: rule for rule in (_mean_over_domains("source_val"), _mean_over_domains("unseen_val"))}
SelectionRule = Literal["source_val", "unseen_val"]


@dataclass(frozen=True)
class Selection:
    """The chosen step and its score."""

    rule: str
    step: int
    score: float


def select(records: Iterable[Record], rule: str = "source_val") -> Selection:
    """Return the step that a rule selects."""
    if rule not in RULES:
        raise unknown_name("selection rule", rule, RULES)
    chosen = RULES[rule]
    scores = chosen.scores(Reader(records, chosen.roles, rule))
    if not scores:
        raise MessiError(
            f"Nothing was evaluated that the selection rule '{rule}' reads, so no step can be selected; "
            f"choose another with --selection ({', '.join(RULES)})."
        )
    step = max(sorted(scores), key=lambda s: scores[s])
    return Selection(rule=rule, step=step, score=scores[step])
