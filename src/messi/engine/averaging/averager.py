"""The interface of everything that averages the weights of a module during training."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass
class Stretch:
    """Consecutive steps and the mean of the weights after each of them.

    With a decay d, a step counts d times as much as the next one. The mean is normalised, so the first step has no
    excess weight: it counts d^(n-1) / (1 + d + ... + d^(n-1)) after n steps.
    """

    first: int
    steps: int
    """Number of steps."""
    mean: list[Tensor]
    decay: float = 1.0

    @property
    def last(self) -> int:
        """The last step."""
        return self.first + self.steps - 1

    def extend(self, mean: Sequence[Tensor], steps: int = 1) -> None:
        """Include the steps that follow, given the mean of their weights, with the same decay."""
        self.steps += steps
        share = self._mass(steps) / self._mass(self.steps)
        torch._foreach_lerp_(self.mean, list(mean), share)  # one launch for all, as torch.optim does

    def _mass(self, steps: int) -> float:
        """Return the sum of the weights of so many steps, the last of which has weight 1."""
        return steps if self.decay == 1 else (1 - self.decay**steps) / (1 - self.decay)


@dataclass(frozen=True, kw_only=True)
class AverageDescription:
    """The state of an averager without its tensors."""

    ends: tuple[int, ...]
    """The last step of each segment."""
    losses: tuple[float, ...]
    stretches: tuple[tuple[int, int], ...]
    """The first step and the number of steps of each."""
    running: bool
    """Whether the last stretch has not ended."""


class Averager(ABC):
    """Averages the weights of a module over steps; never waits for the device."""

    decay = 1.0

    def __init__(self, module: nn.Module, *, first: int = 1) -> None:
        trained = [weight for weight in module.parameters() if weight.is_floating_point() and weight.requires_grad]
        self._weights = [weight.detach() for weight in trained]
        self._first = first
        self._ends: list[int] = []
        """The last step of each segment, that is, of the averaged steps between two evaluations."""
        self._losses: list[float] = []
        self._finished: list[Stretch] = []
        self._running: Stretch | None = None
        """The steps since the last finished stretch."""

    @property
    def ended(self) -> bool:
        """Whether the average is complete, and training may stop."""
        return False

    def add(self, step: int) -> None:
        """Include the weights after a step, unless it is before the first step to average."""
        if step < self._first:
            return
        if self._running is None:
            self._running = Stretch(step, 1, [weight.clone() for weight in self._weights], self.decay)
        else:
            self._running.extend(self._weights)

    @abstractmethod
    def end_segment(self, step: int, loss: float) -> None:
        """Note that the validation loss after ``step`` is ``loss``."""

    @abstractmethod
    def average(self) -> Stretch:
        """Return the averaged steps and the mean of their weights; call it after the last evaluation."""

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
        self._finished = [
            Stretch(first, steps, self._like_weights(tensors, place), self.decay)
            for place, (first, steps) in enumerate(description.stretches)
        ]
        self._running = self._finished.pop() if description.running else None

    def _like_weights(self, tensors: Mapping[str, Tensor], place: int) -> list[Tensor]:
        return [torch.empty_like(w).copy_(tensors[f"{place}/{i}"]) for i, w in enumerate(self._weights)]

    def _stretches(self) -> list[Stretch]:
        return self._finished if self._running is None else [*self._finished, self._running]


def joined(stretches: Sequence[Stretch]) -> Stretch:
    """Merge consecutive stretches into the first of them."""
    first, *others = stretches
    for other in others:
        first.extend(other.mean, other.steps)
    return first
