"""Which of several methods to recommend, from paired scores: a pure function, with the reasons in words."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from messi.reports.number_format import decimal
from messi.reports.statistics import Difference, Scores, paired_difference


@dataclass(frozen=True)
class Recommendation:
    """The recommended method, why, and how every other method compares with the baseline."""

    method: str
    reason: str
    findings: Sequence[str]
    """Sentences that state what can and what cannot be distinguished."""


def recommend(scores: Mapping[str, Scores], baseline: str) -> Recommendation | None:
    """Recommend a method, in the order of preference of ``scores``; None as long as a method lacks a score.

    A method is recommended instead of the baseline only if the 95 % interval of its difference is above 0. Of those,
    the first that cannot be distinguished from the best is recommended, because earlier methods are simpler.
    """
    keys = {key for found in scores.values() for key in found}
    if not keys or any(found.keys() != keys for found in scores.values()):
        return None
    differences = {name: _difference(scores[name], scores[baseline]) for name in scores if name != baseline}
    better = [name for name, found in differences.items() if _sign(found) > 0]
    findings = find_differences(scores, baseline)
    if not better:
        return Recommendation(baseline, _for_baseline(differences, baseline), findings)
    best = max(better, key=lambda name: statistics.fmean(scores[name].values()))
    chosen = next(name for name in better if name == best or _sign(_difference(scores[best], scores[name])) == 0)
    reason = f"It is better than {baseline} by {_shown(differences[chosen])}."
    if chosen != best:
        reason += f" {best} has a higher mean, but is not distinguishable from {chosen}, which comes first in the list."
    return Recommendation(chosen, reason, findings)


def _difference(ours: Scores, theirs: Scores) -> Difference:
    found = paired_difference(ours, theirs, sorted({group for group, _ in ours}))
    assert found is not None  # noqa: S101 (both have the same keys)
    return found


def _sign(found: Difference) -> int:
    """Return 1 or -1 if the interval excludes 0, and 0 if the difference cannot be told from 0."""
    low, high = found.interval or (0.0, 0.0)
    return int(low > 0) - int(high < 0)


def _for_baseline(differences: Mapping[str, Difference], baseline: str) -> str:
    if not differences:
        return "It is the only method."
    if any(found.interval is None for found in differences.values()):
        return f"One seed cannot show that another method is better than {baseline}; use --seeds 3 or more."
    return f"No other method is better than {baseline} beyond the variation between these seeds."


def find_differences(scores: Mapping[str, Scores], baseline: str) -> list[str]:
    """Return sentences on which methods are better, worse or not distinguishable; all have the same scores."""
    differences = {name: _difference(scores[name], scores[baseline]) for name in scores if name != baseline}
    kinds = {
        f"Better than {baseline}": [name for name, found in differences.items() if _sign(found) > 0],
        f"Worse than {baseline}": [name for name, found in differences.items() if _sign(found) < 0],
        f"Not distinguishable from {baseline} with these seeds": [
            name for name, found in differences.items() if _sign(found) == 0
        ],
    }
    return [
        f"{kind}: {'; '.join(f'{name}, {_shown(differences[name])}' for name in names)}."
        for kind, names in kinds.items()
        if names
    ]


def _shown(found: Difference) -> str:
    mean, *ends = (decimal(value, 1, signed=True) for value in (found.mean, *(found.interval or ())))
    return f"{mean} points" + (f" (95 % interval {ends[0]} to {ends[1]})" if ends else "")
