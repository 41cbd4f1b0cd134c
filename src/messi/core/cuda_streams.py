"""Independent pieces of work next to each other on a GPU."""

import functools
from collections.abc import Callable
from typing import TypeVar

import torch

_T = TypeVar("_T")


def run_concurrently(device: torch.device, first: Callable[[], _T], *others: Callable[[], _T]) -> list[_T]:
    """Return what each piece of work returns; on a GPU every piece has a stream of its own, in the backward pass too.

    Pieces of many small kernels hide behind each other: none of them fills the device, each waits for its own last.
    """
    if device.type != "cuda":
        return [work() for work in (first, *others)]
    here = torch.cuda.current_stream(device)
    results = []
    for number, work in enumerate(others):
        there = _stream(device, number)
        there.wait_stream(here)
        with torch.cuda.stream(there):
            results.append(work())
    results.insert(0, first())
    for number in range(len(others)):
        # Memory of one stream is reused by it alone, and only after it has waited for this one again.
        here.wait_stream(_stream(device, number))
    return results


@functools.cache
def _stream(device: torch.device, number: int) -> torch.cuda.Stream:
    """Return the same stream every time; ``number`` tells those of a device apart."""
    del number
    return torch.cuda.Stream(device)
