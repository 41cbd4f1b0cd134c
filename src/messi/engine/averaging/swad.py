"""SWAD's dense average: the mean of the weights after every step of a valley of the validation loss.

Segments that the valley may yet begin with are kept one by one. Once it was seen, what is in it is one mean, and what
came after its last low loss another, which joins the first if the loss falls again.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from messi.engine.averaging.valley import Valley, find_valley


@dataclass
class Stretch:
    """Some steps in a row, and the mean of the weights after each of them."""

    first: int
    """Its first step."""
    steps: int
    mean: list[Tensor]

    @property
    def last(self) -> int:
        """Its last step."""
        return self.first + self.steps - 1

    def extend(self, mean: Sequence[Tensor], steps: int = 1) -> None:
        """Take in the steps that follow, given the mean of their weights."""
        self.steps += steps
        torch._foreach_lerp_(self.mean, list(mean), steps / self.steps)  # one launch for all, as torch.optim does


@dataclass(frozen=True, kw_only=True)
class AverageDescription:
    """The state of an average besides its tensors."""

    ends: tuple[int, ...]
    """The last step of each segment."""
    losses: tuple[float, ...]
    stretches: tuple[tuple[int, int], ...]
    """The first step and the number of steps of each."""
    running: bool
    """Whether the last stretch is of a segment that has not ended."""


class Averager:
    """Follows the weights of a module and its validation loss; never waits for the device."""

    def __init__(
        self, module: nn.Module, *, optimum_patience: int = 3, overfit_patience: int = 6, tolerance: float = 0.3
    ) -> None:
        self._weights = [weight.detach() for weight in module.parameters() if weight.is_floating_point()]
        self._patience = (optimum_patience, overfit_patience)
        self._tolerance = tolerance
        # As far back as a valley that is seen at the end of the next segment can begin; the last one in any case.
        self._kept = max(optimum_patience - 1, overfit_patience - 2, 1)
        self._ends: list[int] = []
        """The last step of each segment."""
        self._losses: list[float] = []
        self._valley: Valley | None = None
        self._finished: list[Stretch] = []
        self._running: Stretch | None = None
        """The part of the current segment that is over."""

    @property
    def over(self) -> bool:
        """Whether training need not go on."""
        return self._valley is not None and self._valley.dead

    @property
    def last_step(self) -> int:
        """The last step of the last segment."""
        return self._ends[-1]

    def add(self, step: int) -> None:
        """Take in the weights after a step."""
        if self._running is None:
            self._running = Stretch(step, 1, [weight.clone() for weight in self._weights])
        else:
            self._running.extend(self._weights)

    def end_segment(self, step: int, loss: float) -> None:
        """End the current segment with ``step``, after which the validation loss is ``loss``."""
        assert self._running is not None  # noqa: S101 (told to the type checker; a segment has steps)
        self._ends.append(step)
        self._losses.append(loss)
        self._finished.append(self._running)
        self._running = None
        valley = self._valley = self._find()
        if valley is None:
            del self._finished[: -self._kept]
            return
        first, last = self._ends[valley.first - 1] + 1 if valley.first else 1, self._ends[valley.last]
        inside = [stretch for stretch in self._finished if stretch.first >= first and stretch.last <= last]
        after = [stretch for stretch in self._finished if stretch.first > last]
        self._finished = [_joined(stretches) for stretches in (inside, after) if stretches]

    def average(self) -> Stretch:
        """Return the answer, once the last segment has ended: the valley, or the last segment if there is none."""
        if self._valley is not None:
            return self._finished[0]
        warnings.warn(
            f"The validation loss was never the lowest of {self._patience[0]} evaluations from there on, so SWAD saw "
            "no valley and averages the steps between the last two alone; train for more steps, or evaluate more "
            "often with --evaluate-every.",
            stacklevel=2,
        )
        return self._finished[-1]

    @torch.no_grad()
    def install(self, stretch: Stretch) -> None:
        """Make the averaged weights those of the module; its buffers stay as the last step left them."""
        torch._foreach_copy_(self._weights, stretch.mean)

    def tensors(self) -> dict[str, Tensor]:
        """Return all means, to be saved."""
        places = enumerate(self._stretches())
        return {f"{place}/{i}": t for place, stretch in places for i, t in enumerate(stretch.mean)}

    def description(self) -> AverageDescription:
        """Return the rest of the state."""
        return AverageDescription(
            ends=tuple(self._ends),
            losses=tuple(self._losses),
            stretches=tuple((stretch.first, stretch.steps) for stretch in self._stretches()),
            running=self._running is not None,
        )

    def load(self, tensors: Mapping[str, Tensor], description: AverageDescription) -> None:
        """Restore what :meth:`tensors` and :meth:`description` gave."""
        self._ends, self._losses = list(description.ends), list(description.losses)
        self._valley = self._find()
        self._finished = [
            Stretch(first, steps, [torch.empty_like(w).copy_(tensors[f"{p}/{i}"]) for i, w in enumerate(self._weights)])
            for p, (first, steps) in enumerate(description.stretches)
        ]
        self._running = self._finished.pop() if description.running else None

    def _stretches(self) -> list[Stretch]:
        return self._finished if self._running is None else [*self._finished, self._running]

    def _find(self) -> Valley | None:
        optimum, overfit = self._patience
        return find_valley(self._losses, optimum_patience=optimum, overfit_patience=overfit, tolerance=self._tolerance)


def _joined(stretches: Sequence[Stretch]) -> Stretch:
    """Join stretches that follow one another, in the memory of the first."""
    first, *others = stretches
    for other in others:
        first.extend(other.mean, other.steps)
    return first
