"""Which part of training SWAD averages: a pure function of the validation losses (Cha et al., 2021).

Training is cut into segments that end at an evaluation. When the loss has not fallen for some segments, a valley has
begun; when it has stayed above a threshold for some more, the valley is over. Nothing here touches weights, so the
choice can be made again from the records alone.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Valley:
    """The segments of low loss, counted from 0."""

    first: int
    last: int
    """The last one so far whose loss is not above the threshold."""
    threshold: float
    dead: bool
    """Whether the valley is over, so that training need not go on."""


def find_valley(
    losses: Sequence[float], *, optimum_patience: int = 3, overfit_patience: int = 6, tolerance: float = 0.3
) -> Valley | None:
    """Return the valley that the losses at the ends of all segments so far show, if there is one.

    Args:
        losses: mean validation loss at the end of each segment; none follows that of a dead valley.
        optimum_patience: a valley is seen when the loss of a segment is the lowest of as many segments from it on.
        overfit_patience: the valley is over after as many segments above the threshold; and how far back it may begin.
        tolerance: how far above the mean of those lowest losses the threshold lies.

    """
    bottom = _bottom(losses, optimum_patience)
    if bottom is None:
        return None
    threshold = (1 + tolerance) * statistics.fmean(losses[bottom : bottom + optimum_patience])
    seen = bottom + optimum_patience - 1
    oldest = max(seen - overfit_patience + 1, 0)
    # Up to the bottom; past it where training has not been long enough to look back that far.
    candidates = range(oldest, min(oldest + overfit_patience - optimum_patience, seen) + 1)
    begin = max((number + 1 for number in candidates if losses[number] > threshold), default=oldest)
    last = max((number for number in range(bottom, len(losses)) if losses[number] <= threshold), default=bottom)
    return Valley(
        first=min(begin + 1, bottom),  # the original leaves out the one that it begins with
        last=last,
        threshold=threshold,
        dead=len(losses) - 1 - last >= overfit_patience,
    )


def _bottom(losses: Sequence[float], patience: int) -> int | None:
    """Return the first segment that is no worse than those after it, as many as there must be."""
    for number in range(len(losses) - patience + 1):
        if losses[number] == min(losses[number : number + patience]):
            return number
    return None
