"""The training step as one CUDA graph: recorded once, then started by a single call instead of a thousand launches."""

import dataclasses
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch
from torch import Tensor

from messi.algorithms._base import Algorithm, Stepper
from messi.core.batch import Batch, LossTerms

# Steps before the recording: they compile kernels, choose algorithms and allocate the optimizer's state.
_WARM_UP = 3


class Updater:
    """Takes training steps: eagerly at first, then by replaying a recorded one, where method and device allow that."""

    def __init__(self, algorithm: Algorithm, stepper: Stepper, device: torch.device, *, capture: bool = True) -> None:
        self._algorithm, self._stepper, self._device = algorithm, stepper, device
        self._wanted = capture and device.type == "cuda" and algorithm.capturable
        self._steps = 0
        self._recording: tuple[torch.cuda.CUDAGraph, Batch, LossTerms] | None = None

    @property
    def captured(self) -> bool:
        """Whether steps are replayed by now."""
        return self._recording is not None

    def __call__(self, batch: Batch) -> LossTerms:
        """Take one step; its terms hold until the next."""
        self._steps += 1
        if self._wanted and self._recording is None and self._steps > _WARM_UP:
            self._record(batch)
        if self._recording is None or not _fills(batch, self._recording[1]):
            return self._algorithm.update(batch, self._stepper)
        graph, inputs, terms = self._recording
        for mine, given in zip(_tensors(inputs), _tensors(batch), strict=True):
            mine.copy_(given)
        graph.replay()
        return terms

    def _record(self, batch: Batch) -> None:
        """Record a step without taking it. Where that fails, steps stay eager; they are the same, only slower."""
        inputs = dataclasses.replace(batch, **{name: tensor.clone() for name, tensor in vars(batch).items()})
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
            self._recording = graph, inputs, terms


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


def _tensors(batch: Batch) -> tuple[Tensor, ...]:
    return tuple(vars(batch).values())


def _fills(batch: Batch, buffers: Batch) -> bool:
    """Return whether a batch has the shapes that were recorded."""
    return all(a.shape == b.shape for a, b in zip(_tensors(batch), _tensors(buffers), strict=True))
