"""Where the pixels of a run are: on the GPU if they fit, else in pinned memory, else in their file.

Without kernels for the device, images stay on the host, which prepares them.
"""

import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from dataclasses import replace

import torch
from torch import Tensor

from messi.core import gpu_kernels
from messi.core.info import free_memory
from messi.data.images import Images
from messi.data.threads import worker_threads

_SHARE = 0.5
"""Fraction of the free memory for pixels; the rest is for the network, its activations and other processes."""
_AHEAD, _READERS = 3, 2
"""Batches that are read ahead of the current one, and the number of threads that read them."""
_PART = 64
"""Images that a thread compares with their checksums at a time."""


def image_device(device: torch.device) -> torch.device:
    """Return where images are cropped and resized: on the device if kernels run there, otherwise on the CPU."""
    return device if gpu_kernels.available(device) else torch.device("cpu")


def place(
    images: Images, device: torch.device, *, gpu_space: int | None = None, host_space: int | None = None
) -> Images:
    """Move the images to the fastest memory with enough space; by default, the space in bytes is measured."""
    if not gpu_kernels.available(device):
        return images
    size = images.pixels.numel()
    if gpu_space is None:
        gpu_space = int(_SHARE * torch.cuda.mem_get_info(device)[0])
    if size <= gpu_space:
        return replace(_checked(images), pixels=images.pixels.to(device), checksums=None)
    if host_space is None:
        host_space = int(_SHARE * (free_memory() or 0))
    if size <= host_space:
        return replace(_checked(images), pixels=images.pixels.pin_memory(), checksums=None)
    return images


def _checked(images: Images) -> Images:
    """Compare all images with their checksums, in threads: this is what reads them from the disk."""
    with worker_threads(os.cpu_count() or 1) as threads:
        parts = [images.select(slice(start, start + _PART)) for start in range(0, len(images), _PART)]
        list(threads.map(Images.check, parts))
    return images


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor to a device; the host does not wait for a GPU."""
    if device.type != "cuda" or tensor.is_cuda:
        return tensor.to(device)
    with torch.cuda.device(device):  # each thread has its own current device, and pinned memory belongs to it
        return tensor.pin_memory().to(device, non_blocking=True)


def fetch(batches: Iterable[Images], device: torch.device) -> Iterator[Images]:
    """Yield batches of placed images in memory that kernels on the device can read.

    Threads read from the disk, several batches ahead, into pinned memory, from which a GPU copies.
    """
    if device.type != "cuda":
        yield from batches
        return
    for images in _gathered(batches, device):
        yield images.to(device)


def _gathered(batches: Iterable[Images], device: torch.device) -> Iterator[Images]:
    """Yield batches in order; a batch on the host is copied first, so that only its own images are moved."""
    waiting: deque[Future[Images]] = deque()
    with worker_threads(_READERS) as threads:
        for images in batches:
            if images.pixels.is_cuda:
                yield images
            elif images.pixels.is_pinned():
                yield images.gather(device=device)
            else:
                waiting.append(threads.submit(images.gather, pinned=True))
            if len(waiting) > _AHEAD:
                yield waiting.popleft().result()
        yield from (future.result() for future in waiting)
