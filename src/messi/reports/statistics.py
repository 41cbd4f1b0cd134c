"""Statistics of repeated runs: means with their spread, averages over targets, paired differences, domain growth."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from scipy.special import stdtrit

from messi.core.errors import MessiError

Dispersion = Literal["deviation", "standard error"]
"""The sample standard deviation (ddof 1), or DomainBed's standard error (ddof 0, divided by the root of n)."""

Scores = Mapping[tuple[str, int], float]
"""A value for every pair of target and seed."""


@dataclass(frozen=True)
class Summary:
    """A mean over n values and their spread; None for a single value or a mean that is not finite."""

    mean: float
    spread: float | None
    n: int

    def in_percent(self) -> "Summary":
        """Return the summary of shares in percent."""
        return Summary(100 * self.mean, None if self.spread is None else 100 * self.spread, self.n)


@dataclass(frozen=True)
class Worst:
    """The target with the lowest mean over seeds."""

    target: str
    summary: Summary


@dataclass(frozen=True)
class Difference:
    """A mean difference over n pairs and its 95 % interval; None if a target has a single pair."""

    mean: float
    interval: tuple[float, float] | None
    n: int


@dataclass(frozen=True)
class Growth:
    """How accuracy changes with the number of source domains, over seeds.

    The peak is the number of domains with the highest mean over seeds, the same for every seed. The mean of the seeds'
    individual maxima would grow with their noise, and so would the drop.
    """

    peak_at: int
    """The number of domains at the peak of the mean curve; the smallest if several are equal."""
    peak: Summary
    """The accuracy there."""
    last: Summary
    """The accuracy at the largest number of domains."""
    drop: Summary
    """Peak minus last, seed by seed."""
    relative_drop: Summary
    """The drop as a share of the seed's accuracy at the peak."""
    average: Summary
    """The mean over all numbers of domains."""


def summarise(values: Sequence[float], *, dispersion: Dispersion = "deviation") -> Summary:
    """Return the mean, the spread and the number of values."""
    if not values:
        raise MessiError("A mean requires at least one value, but `values` is empty; leave the cell empty instead.")
    mean, n = statistics.mean(values), len(values)
    if n == 1 or not math.isfinite(mean):
        spread = None
    elif dispersion == "deviation":
        spread = statistics.stdev(values)
    else:
        spread = statistics.pstdev(values) / math.sqrt(n)
    return Summary(mean, spread, n)


def target_average(scores: Scores, targets: Sequence[str], *, dispersion: Dispersion = "deviation") -> Summary | None:
    """Average over targets seed by seed, then summarise over seeds; None if a target lacks a seed."""
    seeds = _complete_seeds(scores, targets)
    averages = [statistics.fmean(scores[target, seed] for target in targets) for seed in seeds]
    return summarise(averages, dispersion=dispersion) if averages else None


def worst_target(scores: Scores, targets: Sequence[str], *, dispersion: Dispersion = "deviation") -> Worst | None:
    """Return the target with the lowest mean over seeds; None if a target lacks a seed.

    The mean of the seeds' individual minima would decrease with their noise and would not belong to a single target.
    """
    seeds = _complete_seeds(scores, targets)
    if not seeds:
        return None
    summaries = {t: summarise([scores[t, seed] for seed in seeds], dispersion=dispersion) for t in targets}
    worst = min(targets, key=lambda target: summaries[target].mean)
    return Worst(worst, summaries[worst])


def whole_seeds(scores: Scores, targets: Sequence[str]) -> dict[tuple[str, int], float]:
    """Return the scores of the seeds that have a score for every target."""
    whole = {seed for _, seed in scores if all((target, seed) in scores for target in targets)}
    return {key: value for key, value in scores.items() if key[1] in whole}


def paired_difference(scores: Scores, baseline: Scores, targets: Sequence[str]) -> Difference | None:
    """Return the difference to a baseline, paired by target and seed; None if a target has no pair.

    The mean is taken over the pairs of each target and then over targets. The interval is Student's with the
    variance within each target and the degrees of freedom of Welch and Satterthwaite, because a bootstrap of three
    pairs is too narrow. It describes other seeds on the same targets.
    """
    pairs = _by_target({key: scores[key] - baseline[key] for key in scores.keys() & baseline.keys()})
    if not pairs or pairs.keys() != set(targets):
        return None
    mean = statistics.fmean(statistics.fmean(values) for values in pairs.values())
    n = sum(map(len, pairs.values()))
    if any(len(values) == 1 for values in pairs.values()):
        return Difference(mean, None, n)
    squared_errors = [(statistics.variance(values) / len(values), len(values) - 1) for values in pairs.values()]
    total = math.fsum(error for error, _ in squared_errors)
    if total == 0:
        return Difference(mean, (mean, mean), n)
    freedom = total**2 / math.fsum(error**2 / own for error, own in squared_errors)
    half = float(stdtrit(freedom, 0.975)) * math.sqrt(total) / len(pairs)
    return Difference(mean, (mean - half, mean + half), n)


def growth(curves: Sequence[Mapping[int, float]]) -> Growth | None:
    """Summarise curves of accuracy by number of source domains, one complete curve per seed; None if there is none."""
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
    """Return all seeds if every target has a score for each of them, otherwise none."""
    seeds = sorted({seed for _, seed in scores})
    return seeds if targets and all((t, seed) in scores for t in targets for seed in seeds) else []


def _by_target(scores: Scores) -> dict[str, list[float]]:
    groups: dict[str, list[float]] = {}
    for (target, _), value in scores.items():
        groups.setdefault(target, []).append(value)
    return groups
