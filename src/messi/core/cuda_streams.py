"""Run independent pieces of work concurrently on a GPU."""

import functools
from collections.abc import Callable
from typing import TypeVar

import torch

_T = TypeVar("_T")


def run_concurrently(device: torch.device, first: Callable[[], _T], *others: Callable[[], _T]) -> list[_T]:
    """Return the result of each piece of work; on a GPU each runs on its own stream, in the backward pass too.

    Work made of many small kernels overlaps well, because no single kernel fills the device.
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
        # A stream reuses only its own memory, and only after it has waited for this stream again.
        here.wait_stream(_stream(device, number))
    return results


@functools.cache
def _stream(device: torch.device, number: int) -> torch.cuda.Stream:
    """Return the same stream for the same number every time."""
    del number
    return torch.cuda.Stream(device)
