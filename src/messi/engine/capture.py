"""The training step as one CUDA graph: recorded once, then started by a single call instead of a thousand launches."""

import warnings
from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from messi.algorithms.common.base import Algorithm, Stepper
from messi.core.batch import Batch, LossTerms

# Steps before the recording: they compile kernels, choose algorithms and allocate the optimizer's state.
_WARM_UP = 3


class Recording(NamedTuple):
    """A recorded step, what it reads and what it writes."""

    graph: torch.cuda.CUDAGraph
    batch: Batch
    terms: LossTerms


class Updater:
    """Takes training steps: eagerly at first, then by replaying recorded ones, where method and device allow that."""

    def __init__(self, algorithm: Algorithm, stepper: Stepper, device: torch.device, *, capture: bool = True) -> None:
        self._algorithm, self._stepper, self._device = algorithm, stepper, device
        self._wanted = capture and device.type == "cuda"
        self._taken: Counter[Hashable] = Counter()
        """Eager steps of each phase."""
        self._recordings: dict[Hashable, Recording] = {}

    @property
    def captured(self) -> bool:
        """Whether steps are replayed by now."""
        return bool(self._recordings)

    def __call__(self, batch: Batch) -> LossTerms:
        """Take one step; its terms hold until the next."""
        phase = self._algorithm.phase(batch.step)
        if self._wanted and phase is not None and phase not in self._recordings and self._taken[phase] >= _WARM_UP:
            self._record(batch, phase)
        recording = self._recordings.get(phase)
        if recording is None or not _fills(batch, recording.batch):
            self._taken[phase] += 1
            return self._algorithm.update(batch, self._stepper)
        for mine, given in zip(_tensors(recording.batch), _tensors(batch), strict=True):
            mine.copy_(given)
        recording.graph.replay()
        return recording.terms

    def _record(self, batch: Batch, phase: Hashable) -> None:
        """Record a step without taking it. Where that fails, steps stay eager; they are the same, only slower."""
        inputs = replace(batch, **{name: getattr(batch, name).clone() for name in ("inputs", "labels", "domains")})
        graph, pool = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
        torch.cuda.empty_cache()  # the recording has memory of its own; the warm-up's would lie idle
        # Other threads read and send batches meanwhile, which the stricter modes forbid.
        recording = torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local")
        try:
            with _usable_after_failure(pool, self._device), recording:
                terms = self._algorithm.update(inputs, self._stepper)
        except RuntimeError as error:
            self._wanted = False
            name = type(self._algorithm).__name__
            reason = str(_first(error)).partition("\n")[0]
            warnings.warn(f"The step of {name} cannot be captured and stays eager: {reason}", stacklevel=2)
        else:
            self._recordings[phase] = Recording(graph, inputs, terms)


@contextmanager
def _usable_after_failure(pool: tuple[int, int], device: torch.device) -> Iterator[None]:
    """Undo what a failed recording leaves behind: a random generator and an allocator that believe in it."""
    with torch.cuda.device(device):
        generator = torch.cuda.default_generators[torch.cuda.current_device()]
        state = generator.clone_state()
        try:
            yield
        except RuntimeError:
            generator.graphsafe_set_state(state)
            with suppress(RuntimeError):
                torch._C._cuda_endAllocateToPool(torch.cuda.current_device(), pool)  # noqa: SLF001
            raise


def _first(error: BaseException) -> BaseException:
    """Return what went wrong first; the end of a broken recording raises again."""
    while error.__context__ is not None:
        error = error.__context__
    return error


def _tensors(batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    return batch.inputs, batch.labels, batch.domains


def _fills(batch: Batch, buffers: Batch) -> bool:
    """Return whether a batch has the shapes that were recorded."""
    return all(a.shape == b.shape for a, b in zip(_tensors(batch), _tensors(buffers), strict=True))
