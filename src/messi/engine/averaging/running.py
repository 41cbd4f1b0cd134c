"""MA and EMA: the mean of the weights after every step from a start on, with equal or decaying weights.

torch.optim.swa_utils updates one float32 mean at every step. After thousands of small steps its updates are smaller
than the rounding of the mean and are lost: after 5,000 steps of size 3e-5 from 1, the mean is wrong by 5e-5, one
thousandth of the distance moved. Here blocks of steps are averaged separately and then merged, which is exact to 1e-6
and still one launch for all weights at every step.
"""

from torch import nn

from messi.engine.averaging.averager import Averager, Stretch, joined

BLOCK = 64
"""Steps per block: about the square root of the usual number of steps, which balances both levels of rounding."""


class RunningAverage(Averager):
    """Averages over all steps from the first on; with a decay, it is normalised as Adam's averages are."""

    def __init__(self, module: nn.Module, *, first: int = 1, decay: float = 1.0) -> None:
        super().__init__(module, first=first)
        self.decay = decay

    def add(self, step: int) -> None:
        """Include the weights after a step; merge a full block into the mean."""
        super().add(step)
        if self._running is not None and self._running.steps == BLOCK:
            self._finished = [joined([*self._finished, self._running])]
            self._running = None

    def end_segment(self, step: int, loss: float) -> None:
        """Ignore the validation loss."""

    def average(self) -> Stretch:
        """Return the mean over all steps so far, and leave the state as it is."""
        first, *others = self._stretches()
        copy = Stretch(first.first, first.steps, [tensor.clone() for tensor in first.mean], first.decay)
        return joined([copy, *others])
