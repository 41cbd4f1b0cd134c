"""SWAD: the mean of the weights after every step of a valley of the validation loss.

Until a valley is found, the means of the segments that it may begin with are kept separately. Then two means are kept:
one of the valley, and one of the segments after its last low loss, which joins the first if the loss falls again.
"""

import logging
import math
from collections.abc import Mapping

from torch import Tensor, nn

from messi.engine.averaging.averager import AverageDescription, Averager, Stretch, joined
from messi.engine.averaging.valley import LEARNED, SWADConfig, Valley, find_valley


class SWAD(Averager):
    """Averages the weights of a module, given its validation loss and the loss of a guess."""

    def __init__(self, module: nn.Module, config: SWADConfig, *, first: int = 1, chance: float = math.inf) -> None:
        super().__init__(module, first=first)
        self._config, self._chance = config, chance
        # A valley found at the end of the next segment may begin this many segments back.
        self._kept = max(config.swad_optimum_patience - 1, config.swad_overfit_patience - 2, 1)
        self._valley: Valley | None = None

    @property
    def ended(self) -> bool:
        """Whether the valley has ended, and training may stop."""
        return self._valley is not None and self._valley.ended

    def end_segment(self, step: int, loss: float) -> None:
        """End the current segment with ``step``, after which the validation loss is ``loss``."""
        if self._running is None:  # no step of it may be averaged
            return
        self._ends.append(step)
        self._losses.append(loss)
        self._finished.append(self._running)
        self._running = None
        valley = self._valley = find_valley(self._losses, self._config, chance=self._chance)
        if valley is None:
            del self._finished[: -self._kept]
            return
        first, last = self._ends[valley.first - 1] + 1 if valley.first else 1, self._ends[valley.last]
        inside = [stretch for stretch in self._finished if stretch.first >= first and stretch.last <= last]
        after = [stretch for stretch in self._finished if stretch.first > last]
        self._finished = [joined(stretches) for stretches in (inside, after) if stretches]

    def average(self) -> Stretch:
        """Return the mean of the valley, or of the last segment if there is no valley; call it after a segment ends."""
        if self._valley is not None:
            return self._finished[0]
        reason = f"was the lowest of the {self._config.swad_optimum_patience} evaluations that begin with it"
        if min(self._losses) >= LEARNED * self._chance:
            reason = f"was below {LEARNED * self._chance:.3f}, which is {LEARNED:.0%} of the loss of a guess"
        logging.getLogger("messi").warning(
            "SWAD found no valley and averages only the steps since the second to last evaluation: no validation loss "
            "%s. Train for more steps, or evaluate more often.",
            reason,
        )
        return self._finished[-1]

    def load(self, tensors: Mapping[str, Tensor], description: AverageDescription) -> None:
        """Restore the state, and find the valley again."""
        super().load(tensors, description)
        self._valley = find_valley(self._losses, self._config, chance=self._chance)
