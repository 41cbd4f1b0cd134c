"""The training step as a CUDA graph: captured once, then replayed by one call instead of a thousand launches."""

import warnings
from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from messi.algorithms.common.base import Algorithm
from messi.core.batch import Batch, LossTerms
from messi.core.hardware import hardware_of
from messi.core.processes import Processes
from messi.core.shares import dividing
from messi.engine.stepper import AdamStepper

# Eager steps before the capture: they compile kernels, choose algorithms and allocate the optimizer's state.
_WARM_UP = 3


class CapturedStep(NamedTuple):
    """A captured step, its input and its output tensors."""

    graph: torch.cuda.CUDAGraph
    batch: Batch
    terms: LossTerms


class Updater:
    """Takes training steps: eagerly at first, then by replaying captured ones if method and device allow it."""

    def __init__(
        self,
        algorithm: Algorithm,
        stepper: AdamStepper,
        device: torch.device,
        *,
        capture: bool = True,
        processes: Processes | None = None,
    ) -> None:
        self._algorithm, self._stepper, self._device, self._processes = algorithm, stepper, device, processes
        self._wanted = capture and not hardware_of(device).why_no_kernels
        self._taken: Counter[Hashable] = Counter()
        """Eager steps of each phase."""
        self._captured: dict[Hashable, CapturedStep] = {}

    @property
    def captured(self) -> bool:
        """Whether steps are replayed."""
        return bool(self._captured)

    def __call__(self, batch: Batch) -> LossTerms:
        """Take one step and return its terms, which the next step overwrites."""
        self._stepper.begin(batch.step)
        phase = self._phase(batch.step)
        if self._wanted and phase is not None and phase not in self._captured and self._taken[phase] >= _WARM_UP:
            self._capture(batch, phase)
        captured = self._captured.get(phase)
        if captured is None or not _fills(batch, captured.batch):
            self._taken[phase] += 1
            return self._update(batch)
        for mine, given in zip(_tensors(captured.batch), _tensors(batch), strict=True):
            mine.copy_(given)
        captured.graph.replay()
        return captured.terms

    def _update(self, batch: Batch) -> LossTerms:
        with dividing(self._processes, batch, type(self._algorithm).__name__):
            return self._algorithm.update(batch, self._stepper)

    def _phase(self, step: int) -> Hashable | None:
        """Return the method's kind of step and whether the step is one of the probe; None is never captured."""
        kind = self._algorithm.phase(step)
        return None if kind is None else (kind, self._stepper.probing)

    def _capture(self, batch: Batch, phase: Hashable) -> None:
        """Capture a step without taking it. If that fails, steps stay eager: same result, but slower."""
        inputs = replace(batch, **{name: getattr(batch, name).clone() for name in ("inputs", "labels", "domains")})
        graph, pool = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
        torch.cuda.empty_cache()  # the graph has its own memory; the memory of the warm-up would stay unused
        # Other threads read and copy batches meanwhile, which the stricter modes forbid.
        capture = torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local")
        try:
            with _usable_after_failure(pool, self._device), capture:
                terms = self._update(inputs)
        except RuntimeError as error:
            self._wanted = False
            name = type(self._algorithm).__name__
            reason = str(_first(error)).partition("\n")[0]
            warnings.warn(f"The step of {name} cannot be captured and stays eager: {reason}", stacklevel=2)
        else:
            self._captured[phase] = CapturedStep(graph, inputs, terms)


@contextmanager
def _usable_after_failure(pool: tuple[int, int], device: torch.device) -> Iterator[None]:
    """Reset the random generator and the allocator after a failed capture: both stay in capture mode."""
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
    """Return the original error; the end of a failed capture raises another one."""
    while error.__context__ is not None:
        error = error.__context__
    return error


def _tensors(batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    return batch.inputs, batch.labels, batch.domains


def _fills(batch: Batch, buffers: Batch) -> bool:
    """Return whether a batch has the captured shapes."""
    return all(a.shape == b.shape for a, b in zip(_tensors(batch), _tensors(buffers), strict=True))
