"""SWAD: the mean of the weights after every step of a valley of the validation loss.

Until a valley is found, the means of the segments that it may begin with are kept separately. Then two means are kept:
one of the valley, and one of the segments after its last low loss, which joins the first if the loss falls again.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from messi.engine.averaging.valley import SWADConfig, Valley, find_valley


@dataclass
class Stretch:
    """Consecutive steps and the mean of the weights after each of them."""

    first: int
    steps: int
    """Number of steps."""
    mean: list[Tensor]

    @property
    def last(self) -> int:
        """The last step."""
        return self.first + self.steps - 1

    def extend(self, mean: Sequence[Tensor], steps: int = 1) -> None:
        """Include the steps that follow, given the mean of their weights."""
        self.steps += steps
        torch._foreach_lerp_(self.mean, list(mean), steps / self.steps)  # one launch for all, as torch.optim does


@dataclass(frozen=True, kw_only=True)
class AverageDescription:
    """The state of an average without its tensors."""

    ends: tuple[int, ...]
    """The last step of each segment."""
    losses: tuple[float, ...]
    stretches: tuple[tuple[int, int], ...]
    """The first step and the number of steps of each."""
    running: bool
    """Whether the last stretch belongs to a segment that has not ended."""


class SWAD:
    """Averages the weights of a module, given its validation loss; never waits for the device."""

    def __init__(self, module: nn.Module, config: SWADConfig) -> None:
        self._weights = [weight.detach() for weight in module.parameters() if weight.is_floating_point()]
        self._config = config
        # A valley found at the end of the next segment may begin this many segments back.
        self._kept = max(config.swad_optimum_patience - 1, config.swad_overfit_patience - 2, 1)
        self._ends: list[int] = []
        """The last step of each segment."""
        self._losses: list[float] = []
        self._valley: Valley | None = None
        self._finished: list[Stretch] = []
        self._running: Stretch | None = None
        """The steps of the current segment so far."""

    @property
    def ended(self) -> bool:
        """Whether the valley has ended, and training may stop."""
        return self._valley is not None and self._valley.ended

    @property
    def last_step(self) -> int:
        """The last step of the last segment."""
        return self._ends[-1]

    def add(self, step: int) -> None:
        """Include the weights after a step."""
        if self._running is None:
            self._running = Stretch(step, 1, [weight.clone() for weight in self._weights])
        else:
            self._running.extend(self._weights)

    def end_segment(self, step: int, loss: float) -> None:
        """End the current segment with ``step``, after which the validation loss is ``loss``."""
        assert self._running is not None  # noqa: S101 (for the type checker; a segment has steps)
        self._ends.append(step)
        self._losses.append(loss)
        self._finished.append(self._running)
        self._running = None
        valley = self._valley = find_valley(self._losses, self._config)
        if valley is None:
            del self._finished[: -self._kept]
            return
        first, last = self._ends[valley.first - 1] + 1 if valley.first else 1, self._ends[valley.last]
        inside = [stretch for stretch in self._finished if stretch.first >= first and stretch.last <= last]
        after = [stretch for stretch in self._finished if stretch.first > last]
        self._finished = [_joined(stretches) for stretches in (inside, after) if stretches]

    def average(self) -> Stretch:
        """Return the mean of the valley, or of the last segment if there is no valley; call it after a segment ends."""
        if self._valley is not None:
            return self._finished[0]
        warnings.warn(
            "SWAD found no valley and averages only the steps since the second to last evaluation: no validation loss "
            f"was the lowest of the {self._config.swad_optimum_patience} evaluations that begin with it. "
            "Train for more steps, or evaluate more often with --evaluate-every.",
            stacklevel=2,
        )
        return self._finished[-1]

    @torch.no_grad()
    def install(self, stretch: Stretch) -> None:
        """Copy averaged weights into the module; its buffers keep the values of the last step."""
        torch._foreach_copy_(self._weights, stretch.mean)

    def tensors(self) -> dict[str, Tensor]:
        """Return all means, for a checkpoint."""
        places = enumerate(self._stretches())
        return {f"{place}/{i}": t for place, stretch in places for i, t in enumerate(stretch.mean)}

    def description(self) -> AverageDescription:
        """Return the rest of the state, for a checkpoint."""
        return AverageDescription(
            ends=tuple(self._ends),
            losses=tuple(self._losses),
            stretches=tuple((stretch.first, stretch.steps) for stretch in self._stretches()),
            running=self._running is not None,
        )

    def load(self, tensors: Mapping[str, Tensor], description: AverageDescription) -> None:
        """Restore the state that :meth:`tensors` and :meth:`description` returned."""
        self._ends, self._losses = list(description.ends), list(description.losses)
        self._valley = find_valley(self._losses, self._config)
        self._finished = [
            Stretch(first, steps, [torch.empty_like(w).copy_(tensors[f"{p}/{i}"]) for i, w in enumerate(self._weights)])
            for p, (first, steps) in enumerate(description.stretches)
        ]
        self._running = self._finished.pop() if description.running else None

    def _stretches(self) -> list[Stretch]:
        return self._finished if self._running is None else [*self._finished, self._running]


def _joined(stretches: Sequence[Stretch]) -> Stretch:
    """Merge consecutive stretches into the first of them."""
    first, *others = stretches
    for other in others:
        first.extend(other.mean, other.steps)
    return first
