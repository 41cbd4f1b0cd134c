"""What is shown next to accuracy if classes are unbalanced (docs/diagnostics.md states when they are)."""

from collections.abc import Sequence

from messi.reports.result_tables import ROLES
from messi.reports.runs import FinishedRun, run_labels
from messi.reports.statistics import Summary
from messi.reports.table import Cell, Column, Row, Table

CLASS_SCORES = {
    "balanced_accuracy": Column("Balanced %", "up", 1),
    "macro_f1": Column("Macro F1 %", "up", 1),
    "majority_share": Column("Majority %", "none", 1),
}
"""The columns, by the fields of :class:`messi.core.records.ClassScores`."""
EXPLANATION = (
    "Balanced: balanced accuracy, the mean recall over the classes that occur. Macro F1: the mean F1 over the same "
    "classes. Majority: the share of the most frequent class, which is the accuracy of always predicting it"
)


def class_scores_table(runs: Sequence[FinishedRun]) -> Table | None:
    """Return all scores by domain, role and run, the targets first; None if the classes of all runs are balanced."""
    found = [
        (record, label)
        for run, label in zip(runs, run_labels(runs), strict=True)
        for role in ("target", run.validation, "source_test")
        for record in run.selected(role)
        if record.class_scores
    ]
    if not found:
        return None
    places = list(dict.fromkeys((record.role, record.domain) for record, _ in found))
    found.sort(key=lambda one: (one[0].role != "target", places.index((one[0].role, one[0].domain))))
    several = len(runs) > 1
    rows = (
        Row(
            (record.domain, ROLES[record.role], *((label,) if several else ())),
            (
                _percent(record.accuracy, f"n = {record.count}"),
                *(_percent(getattr(record.class_scores, name)) for name in CLASS_SCORES),
            ),
            badge=record.role,
        )
        for record, label in found
    )
    return Table(
        name="class_scores",
        heads=("Domain", "Role", *(("Run",) if several else ())),
        # The best of a column is not marked: its rows are of different domains.
        columns=tuple(Column(name, "none") for name in ("Accuracy %", *(one.name for one in CLASS_SCORES.values()))),
        groups=(tuple(rows),),
    )


def class_scores_sentence(balanced_accuracy: float, macro_f1: float, majority_share: float) -> str:
    """Return what an accuracy on held-out domains hides; all numbers are in percent."""
    return (
        f"The classes are unbalanced: balanced accuracy is {balanced_accuracy:.1f}\u00a0% and macro F1 "
        f"{macro_f1:.1f}\u00a0%; always predicting the most frequent class would reach {majority_share:.1f}\u00a0% "
        "accuracy."
    )


def _percent(share: float, note: str = "") -> Cell:
    return Cell(Summary(100 * share, None, 1), note=note)
