"""What repeated runs say together: means with their spread, averages over targets, differences, domain growth."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from messi.core.errors import MessiError

Dispersion = Literal["deviation", "standard error"]
"""The sample standard deviation (ddof 1), or DomainBed's standard error (ddof 0, divided by the root of n)."""

Scores = Mapping[tuple[str, int], float]
"""A value for every pair of target and seed."""

RESAMPLES = 10_000
"""Of a bootstrap interval."""


@dataclass(frozen=True)
class Summary:
    """A mean over n values and how far they spread; neither a single value nor one that is not finite has a spread."""

    mean: float
    spread: float | None
    n: int


@dataclass(frozen=True)
class Worst:
    """The target with the lowest mean over seeds."""

    target: str
    summary: Summary


@dataclass(frozen=True)
class Difference:
    """A mean difference over n pairs and its 95 % bootstrap interval; None where a target has a single pair."""

    mean: float
    interval: tuple[float, float] | None
    n: int


@dataclass(frozen=True)
class Growth:
    """How accuracy changes with the number of source domains, over seeds.

    The peak is where the mean over seeds is highest, the same place for every seed. The mean of each seed's own highest
    value would be higher the noisier the seeds are, and its drop larger.
    """

    peak_at: int
    """The number of domains at the peak of the mean curve; the smaller one of equals."""
    peak: Summary
    """At that number."""
    last: Summary
    """At the largest number of domains."""
    drop: Summary
    """From the peak to the last, seed by seed."""
    relative_drop: Summary
    """As a share of the seed's value at the peak."""
    average: Summary
    """Over all numbers of domains."""


def summarise(values: Sequence[float], *, dispersion: Dispersion = "deviation") -> Summary:
    """Return the mean, the spread and the number of values."""
    if not values:
        raise MessiError("A mean needs at least one value, but `values` is empty; leave what was not measured empty.")
    mean, n = statistics.mean(values), len(values)
    if n == 1 or not math.isfinite(mean):
        spread = None
    elif dispersion == "deviation":
        spread = statistics.stdev(values)
    else:
        spread = statistics.pstdev(values) / math.sqrt(n)
    return Summary(mean, spread, n)


def target_average(scores: Scores, targets: Sequence[str], *, dispersion: Dispersion = "deviation") -> Summary | None:
    """Average over targets seed by seed, then summarise over seeds; None where a target lacks one of the seeds."""
    seeds = _complete_seeds(scores, targets)
    averages = [statistics.fmean(scores[target, seed] for target in targets) for seed in seeds]
    return summarise(averages, dispersion=dispersion) if averages else None


def worst_target(scores: Scores, targets: Sequence[str], *, dispersion: Dispersion = "deviation") -> Worst | None:
    """Return the target with the lowest mean over seeds; None where a target lacks one of the seeds.

    The minimum is taken of the means. The mean over seeds of each seed's minimum would be lower the noisier the
    seeds are, and would belong to no single target.
    """
    seeds = _complete_seeds(scores, targets)
    if not seeds:
        return None
    summaries = {t: summarise([scores[t, seed] for seed in seeds], dispersion=dispersion) for t in targets}
    worst = min(targets, key=lambda target: summaries[target].mean)
    return Worst(worst, summaries[worst])


def whole_seeds(scores: Scores, targets: Sequence[str]) -> dict[tuple[str, int], float]:
    """Return the scores of the seeds that have one for every target."""
    whole = {seed for _, seed in scores if all((target, seed) in scores for target in targets)}
    return {key: value for key, value in scores.items() if key[1] in whole}


def paired_difference(scores: Scores, baseline: Scores, targets: Sequence[str]) -> Difference | None:
    """Return by how much scores exceed the baseline's, paired by target and seed.

    The mean is taken over the pairs of each target and then over targets. The interval is a percentile bootstrap that
    draws pairs within each target, so that targets keep their weight; its random numbers are the same in every call.
    With few seeds it is too narrow: three pairs can be drawn in ten ways only. None where a target has no pair.
    """
    pairs = _by_target({key: scores[key] - baseline[key] for key in scores.keys() & baseline.keys()})
    if not pairs or pairs.keys() != set(targets):
        return None
    mean = statistics.fmean(statistics.fmean(values) for values in pairs.values())
    n = sum(map(len, pairs.values()))
    if any(len(values) == 1 for values in pairs.values()):
        return Difference(mean, None, n)
    random = np.random.default_rng(0)
    # Sorted, so that neither the order of the mapping nor the names of seeds decide what is drawn.
    groups = [np.sort(pairs[target]) for target in sorted(pairs)]
    drawn = [random.choice(group, (RESAMPLES, len(group))).mean(axis=1) for group in groups]
    low, high = np.quantile(np.mean(drawn, axis=0), [0.025, 0.975])
    return Difference(mean, (float(low), float(high)), n)


def growth(curves: Sequence[Mapping[int, float]]) -> Growth | None:
    """Summarise accuracy by number of source domains, one whole curve for every seed; None where there is none."""
    if not curves:
        return None
    numbers = sorted(curves[0])
    peak_at = max(numbers, key=lambda number: statistics.fmean(curve[number] for curve in curves))
    peaks, lasts = [curve[peak_at] for curve in curves], [curve[numbers[-1]] for curve in curves]
    drops = [peak - last for peak, last in zip(peaks, lasts, strict=True)]
    return Growth(
        peak_at=peak_at,
        peak=summarise(peaks),
        last=summarise(lasts),
        drop=summarise(drops),
        relative_drop=summarise([drop / peak if peak else math.nan for drop, peak in zip(drops, peaks, strict=True)]),
        average=summarise([statistics.fmean(curve.values()) for curve in curves]),
    )


def _complete_seeds(scores: Scores, targets: Sequence[str]) -> list[int]:
    """Return all seeds if there is a score for every one of them and every target, else none."""
    seeds = sorted({seed for _, seed in scores})
    return seeds if targets and all((t, seed) in scores for t in targets for seed in seeds) else []


def _by_target(scores: Scores) -> dict[str, list[float]]:
    groups: dict[str, list[float]] = {}
    for (target, _), value in scores.items():
        groups.setdefault(target, []).append(value)
    return groups
