"""Write files while training continues."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Self

import torch
from torch import Tensor

from messi.data.threads import worker_threads

_ALIGNED = 16
"""Bytes: alignment that suits every dtype."""


class Snapshot:
    """Copies of tensors in host memory, made asynchronously; the originals may change at once.

    A GPU executes the copies in the order of its work, so later steps do not affect them, and the host does not wait.
    They go directly to one block of pinned memory: copies on the device would be faster, but training that just fits
    into its memory would fail.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._device = next((tensor.get_device() for tensor in tensors.values() if tensor.is_cuda), -1)
        with torch.cuda.device(self._device):  # memory is pinned through the current device; -1 changes nothing
            self._copies = dict(zip(tensors, _empty_like(tensors.values(), pinned=self._device >= 0), strict=True))
            for name, tensor in tensors.items():
                self._copies[name].copy_(tensor.detach(), non_blocking=self._device >= 0)
            self._copied: torch.cuda.Event | None = None
            if self._device >= 0:
                self._copied = torch.cuda.Event(blocking=True)
                self._copied.record()

    @property
    def pending(self) -> bool:
        """Whether a GPU may still be copying."""
        return self._copied is not None

    def wait(self) -> dict[str, Tensor]:
        """Wait for the copies, in any thread, and return them."""
        if self._copied is not None:
            with torch.cuda.device(self._device):  # each thread has its own current device
                self._copied.synchronize()
        return self._copies


def _empty_like(tensors: Iterable[Tensor], *, pinned: bool) -> Iterator[Tensor]:
    """Yield an empty host tensor for each one, all in one block of memory."""
    kept = list(tensors)
    ends = list(itertools.accumulate(-(-tensor.nbytes // _ALIGNED) * _ALIGNED for tensor in kept))
    memory = torch.empty(ends[-1] if ends else 0, dtype=torch.uint8, pin_memory=pinned)
    for tensor, start in zip(kept, [0, *ends], strict=False):
        yield memory[start : start + tensor.nbytes].view(tensor.dtype).view(tensor.shape)


class AsyncWriter:
    """Writes in a separate thread, one job after another; an error there is raised by the next call here.

    After an error every call raises, and nothing more is written. The end of a ``with`` block waits for the last job.
    """

    def __init__(self) -> None:
        self._thread = worker_threads(1)
        self._writing: Future[None] | None = None

    def submit(self, write: Callable[[], None]) -> None:
        """Start a job after waiting for the previous one."""
        self.wait()
        self._writing = self._thread.submit(write)

    def check(self) -> None:
        """Raise the error of a failed job, without waiting."""
        if self._writing is not None and self._writing.done():
            self._writing.result()

    def wait(self) -> None:
        """Wait until the current job is done."""
        if self._writing is not None:
            self._writing.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:  # otherwise the caller's error is the one to raise
                self.wait()
        finally:
            self._end()

    def _end(self) -> None:
        """Let the thread finish, however often Ctrl-C is pressed: afterwards the run folder is no longer locked."""
        while True:
            try:
                self._thread.shutdown()
            except KeyboardInterrupt:
                continue
            return
