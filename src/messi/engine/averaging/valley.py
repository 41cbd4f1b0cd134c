"""Which part of training SWAD averages: a pure function of the validation losses (Cha et al., 2021).

Evaluations cut training into segments. When the loss has not fallen for some segments, a valley has begun; when it has
stayed above a threshold for some more, the valley has ended. Nothing here touches weights, so the valley can be found
again from the records alone.

The original needs long training: the loss of a model that has not learned yet also stays flat for some evaluations, and
with the tolerance of 0.3 nothing ends a valley that begins there. Here a valley begins only when the loss is clearly
below that of a guess. In the published settings it is long before the first valley, so nothing changes there.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from messi.core.config import OPEN, Bounds, Config

LEARNED = 0.98
"""The loss below which a model has learned something, as a fraction of the loss of a guess."""


@dataclass(frozen=True, kw_only=True)
class SWADConfig(Config):
    """When SWAD's valley begins and ends."""

    swad_optimum_patience: Annotated[int, Bounds(minimum=1)] = 3
    """SWAD's valley begins at the first evaluation whose loss is the lowest of this many, itself and those after it."""
    swad_overfit_patience: Annotated[int, Bounds(minimum=1)] = 6
    """SWAD's valley, and training, end after this many evaluations above the tolerated loss."""
    swad_tolerance: Annotated[float, Bounds(minimum=0)] = OPEN
    """How far the loss may rise in SWAD's valley, as a fraction of the loss at its bottom."""


@dataclass(frozen=True)
class Valley:
    """The segments of low loss, counted from 0."""

    first: int
    last: int
    """The last segment so far whose loss is not above the threshold."""
    threshold: float
    ended: bool
    """Whether the valley has ended, and training may stop."""


def find_valley(losses: Sequence[float], config: SWADConfig, *, chance: float = math.inf) -> Valley | None:
    """Return the valley, if there is one, given the mean validation loss at the end of each segment so far.

    The overfit patience also limits how far back a valley may begin, and so does ``chance``, the loss of a guess: no
    valley begins before the loss has fallen clearly below it. Losses after the end of a valley are not allowed.
    """
    learned = next((number for number, loss in enumerate(losses) if loss < LEARNED * chance), len(losses))
    optimum_patience, overfit_patience = config.swad_optimum_patience, config.swad_overfit_patience
    bottom = _bottom(losses, optimum_patience, learned)
    if bottom is None:
        return None
    threshold = (1 + config.swad_tolerance) * statistics.fmean(losses[bottom : bottom + optimum_patience])
    seen = bottom + optimum_patience - 1
    oldest = max(seen - overfit_patience + 1, 0)
    # Up to the bottom; beyond it if training has been too short to look back that far.
    candidates = range(oldest, min(oldest + overfit_patience - optimum_patience, seen) + 1)
    begin = max((number + 1 for number in candidates if losses[number] > threshold), default=oldest)
    last = max((number for number in range(bottom, len(losses)) if losses[number] <= threshold), default=bottom)
    return Valley(
        first=max(min(begin + 1, bottom), learned),  # the original leaves out the segment that it begins with
        last=last,
        threshold=threshold,
        ended=len(losses) - 1 - last >= overfit_patience,
    )


def _bottom(losses: Sequence[float], patience: int, start: int) -> int | None:
    """Return the first segment from ``start`` whose loss is the lowest of ``patience``, itself and those after it."""
    for number in range(start, len(losses) - patience + 1):
        if losses[number] == min(losses[number : number + patience]):
            return number
    return None
