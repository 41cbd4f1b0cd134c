"""The title and the first sentence of a report."""

import json
import statistics
from collections.abc import Sequence

from messi.reports.runs import FinishedRun
from messi.reports.tables import ResultRow, percent

_PARTS = {"all": "all of it", "in": "DomainBed's “in” part of it"}


def title(runs: Sequence[FinishedRun]) -> str:
    """Return which methods are on which data."""
    algorithms = list(dict.fromkeys(run.algorithm for run in runs))
    return f"{_listed(algorithms)} on {_listed(list(dict.fromkeys(run.data for run in runs)))}"


def summary(runs: Sequence[FinishedRun], rows: Sequence[ResultRow]) -> str:
    """Return the result in one sentence."""
    if not all(row.targets for row in rows):
        return _without_target(rows)
    if len(rows) == 1:
        return _of_one(runs[0], rows[0])
    if not _comparable(runs):
        means = sorted(_target_mean(row) for row in rows)
        return (
            f"{len(rows)} runs with different settings: from {percent(means[0])}\u00a0% to "
            f"{percent(means[-1])}\u00a0% correct on domains that no training step saw."
        )
    return f"On {_unseen(rows[0])}: {_compared(rows)}."


def part_in_words(part: str) -> str:
    """Say which part of a target domain was evaluated."""
    return _PARTS.get(part, part)


def _comparable(runs: Sequence[FinishedRun]) -> bool:
    """Tell whether the runs share data and target, and those of one algorithm differ in nothing but the seed."""
    tasks = {(run.fingerprint, run.targets, run.target_part) for run in runs}
    configs = {json.dumps({**run.config, "seed": None}, sort_keys=True) for run in runs}
    return len(tasks) == 1 and len(configs) == len({run.algorithm for run in runs})


def _of_one(run: FinishedRun, row: ResultRow) -> str:
    trained = f"Trained on {_count(len(run.sources), 'domain')}"
    return f"{trained}, {row.algorithm} is right on {percent(_target_mean(row))}\u00a0% of {_unseen(row)}."


def _unseen(row: ResultRow) -> str:
    examples = _count(sum(record.count for record in row.targets), "example")
    domains = _listed([record.domain for record in row.targets])
    if len(row.targets) == 1:
        return f"the {examples} of {domains}, a domain that no training step saw"
    return f"the {examples} of {domains}, domains that no training step saw (mean over domains)"


def _compared(rows: Sequence[ResultRow]) -> str:
    texts = []
    for algorithm in dict.fromkeys(row.algorithm for row in rows):
        means = [_target_mean(row) for row in rows if row.algorithm == algorithm]
        spread = f"\u00a0±\u00a0{percent(statistics.stdev(means))}" if len(means) > 1 else ""
        number = f" (n = {len(means)} runs)" if len(means) > 1 else ""
        texts.append(f"{algorithm} {percent(statistics.fmean(means))}{spread}\u00a0%{number}")
    ending = "; ± is the sample standard deviation over runs" if len(texts) < len(rows) else ""
    return f"{_listed(texts)} correct{ending}"


def _without_target(rows: Sequence[ResultRow]) -> str:
    best = max(rows, key=lambda row: row.validation)
    return (
        f"{'No' if len(rows) == 1 else 'Not every'} run held a domain out, so how well the models do on a new one is "
        f"not known; {best.label} is right on {percent(best.validation)}\u00a0% of the validation data."
    )


def _target_mean(row: ResultRow) -> float:
    return statistics.fmean(record.accuracy for record in row.targets)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
