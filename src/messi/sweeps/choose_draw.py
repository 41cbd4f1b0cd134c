"""Which draw of a search to use: DomainBed's three rules, as pure functions of the records of runs.

A rule scores every draw for one target, in every seed. DomainBed searches anew in every seed, so that its standard
errors do not belong to a single setting; here all seeds share their draws, and the draw with the highest mean over the
seeds is chosen. With one seed both choose the same draw.
"""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from messi.core.records import EvaluationRecord, Record, Role
from messi.evaluation.selection import select

DrawRule = Literal["source_val", "leave_one_out", "oracle"]
HeldOut = frozenset[str]
Scores = Mapping[int, Mapping[int, float]]
"""The score of a draw in every seed: by draw, then by seed."""


@dataclass(frozen=True)
class DrawnRun:
    """What the records of a finished run say about its draw."""

    draw: int
    seed: int
    sources: HeldOut
    held_out: HeldOut
    validation: float
    """The score by which the run selected its model."""
    target: Mapping[str, float]
    """Accuracy of the selected model by domain."""
    target_val: Mapping[str, float]
    """The same on the part of the target that only the oracle reads."""


def drawn_run(
    records: Sequence[Record], *, draw: int, seed: int, held_out: Iterable[str], selection: str, averaged: bool
) -> DrawnRun:
    """Read the records of a finished run; ``averaged`` states whether its model is an average over steps."""
    measured = [r for r in records if isinstance(r, EvaluationRecord)]

    def accuracies(role: Role) -> dict[str, float]:
        return {record.domain: record.accuracy for record in measured if record.role == role}

    return DrawnRun(
        draw=draw,
        seed=seed,
        sources=frozenset(accuracies("source_val")),
        held_out=frozenset(held_out),
        validation=select(records, selection, averaged=averaged).score,
        target=accuracies("target"),
        target_val=accuracies("target_val"),
    )


def source_val(runs: Sequence[DrawnRun], target: HeldOut) -> Scores:
    """Score by the validation data of the training domains."""
    return _by_draw({(run.draw, run.seed): run.validation for run in runs if run.held_out == target})


def leave_one_out(runs: Sequence[DrawnRun], target: HeldOut) -> Scores:
    """Score by the mean accuracy on each source domain in the run that held it out together with the target.

    Every such run selects its own step by source validation, because it reads what it holds out only once.
    """
    places = {(run.draw, run.seed, run.held_out): run for run in runs}
    scores = {}
    for run in (run for run in runs if run.held_out == target):
        folds = {domain: places.get((run.draw, run.seed, target | {domain})) for domain in run.sources}
        found = [fold.target[domain] for domain, fold in folds.items() if fold]
        if found and len(found) == len(folds):
            scores[run.draw, run.seed] = statistics.fmean(found)
    return _by_draw(scores)


def oracle(runs: Sequence[DrawnRun], target: HeldOut) -> Scores:
    """Score by the target itself: the part of it that is not tested, after the last step."""
    chosen = [run for run in runs if run.held_out == target and run.target_val]
    return _by_draw({(run.draw, run.seed): statistics.fmean(run.target_val.values()) for run in chosen})


RULES: dict[DrawRule, Callable[[Sequence[DrawnRun], HeldOut], Scores]] = {
    "source_val": source_val,
    "leave_one_out": leave_one_out,
    "oracle": oracle,
}
TITLES: dict[DrawRule, str] = {
    "source_val": "training-domain validation",
    "leave_one_out": "leave-one-domain-out cross-validation",
    "oracle": "test-domain validation (ORACLE)",
}


def mean_scores(scores: Scores, seeds: Iterable[int]) -> dict[int, float]:
    """Return the mean over the seeds of every draw that has a score in each of them."""
    wanted = set(seeds)
    return {
        draw: statistics.fmean(by_seed[seed] for seed in sorted(wanted))
        for draw, by_seed in sorted(scores.items())
        if by_seed.keys() >= wanted
    }


def best_draw(means: Mapping[int, float]) -> int | None:
    """Return the first draw with the highest mean; None if there is none."""
    return max(sorted(means), key=lambda draw: means[draw], default=None)


def over_targets(means: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """Return the mean over targets of every draw that has a score for each of them."""
    shared = set.intersection(*(set(one) for one in means)) if means else set()
    return {draw: statistics.fmean(one[draw] for one in means) for draw in sorted(shared)}


def _by_draw(scores: Mapping[tuple[int, int], float]) -> Scores:
    found: dict[int, dict[int, float]] = {}
    for (draw, seed), score in scores.items():
        found.setdefault(draw, {})[seed] = score
    return found
