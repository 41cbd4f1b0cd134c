"""Files are written while training goes on."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Self

import torch
from torch import Tensor

from messi.data.threads import single_threads

_ALIGNED = 16
"""Bytes: where a tensor may begin, whatever its dtype."""


class Snapshot:
    """Tensors as they are now, on their way to host memory; the originals may change at once.

    A GPU copies them in the order of its work, so what is computed next cannot reach them, and the host does not wait.
    They go straight to pinned memory, one piece for all: copies on the device would be quicker, but training that just
    fits there, for which the next step needs all of it, would fail for want of theirs.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._device = next((tensor.get_device() for tensor in tensors.values() if tensor.is_cuda), -1)
        with torch.cuda.device(self._device):  # memory is pinned through the current device; -1 changes nothing
            self._copies = dict(zip(tensors, _room(tensors.values(), pinned=self._device >= 0), strict=True))
            for name, tensor in tensors.items():
                self._copies[name].copy_(tensor.detach(), non_blocking=True)
            self._copied: torch.cuda.Event | None = None
            if self._device >= 0:
                self._copied = torch.cuda.Event(blocking=True)
                self._copied.record()

    @property
    def on_the_way(self) -> bool:
        """Whether they come from a GPU, so that it takes a while."""
        return self._copied is not None

    def wait(self) -> dict[str, Tensor]:
        """Return the copies once they are whole; any thread may wait for them."""
        if self._copied is not None:
            with torch.cuda.device(self._device):  # a thread has its own current device
                self._copied.synchronize()
        return self._copies


def _room(tensors: Iterable[Tensor], *, pinned: bool) -> Iterator[Tensor]:
    """Yield an empty tensor on the host for each one, all of them in one piece of memory."""
    kept = list(tensors)
    ends = list(itertools.accumulate(-(-tensor.nbytes // _ALIGNED) * _ALIGNED for tensor in kept))
    memory = torch.empty(ends[-1] if ends else 0, dtype=torch.uint8, pin_memory=pinned)
    for tensor, start in zip(kept, [0, *ends], strict=False):
        yield memory[start : start + tensor.nbytes].view(tensor.dtype).view(tensor.shape)


class AsyncWriter:
    """Writes in a thread of its own, one thing after the other; what goes wrong there is raised by the next call here.

    After that every call raises, and nothing more is written. At the end of a ``with`` block all is on the disk.
    """

    def __init__(self) -> None:
        self._thread = single_threads(1)
        self._writing: Future[None] | None = None

    def submit(self, write: Callable[[], None]) -> None:
        """Begin to write, as soon as what was begun before is done."""
        self.wait()
        self._writing = self._thread.submit(write)

    def check(self) -> None:
        """Raise what went wrong, if something did, without waiting."""
        if self._writing is not None and self._writing.done():
            self._writing.result()

    def wait(self) -> None:
        """Wait until what was begun is on the disk."""
        if self._writing is not None:
            self._writing.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:  # else that error is the one to tell
                self.wait()
        finally:
            self._end()

    def _end(self) -> None:
        """Let the thread finish, however often Ctrl-C is pressed: after this the run's folder is no longer locked."""
        while True:
            try:
                self._thread.shutdown()
            except KeyboardInterrupt:
                continue
            return
